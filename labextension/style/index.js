import './explorer.css';
