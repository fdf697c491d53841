import './explorer.css';
import './lab.css';
