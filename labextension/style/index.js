import './explorer.css';
import './timing.css';
import './guards.css';
import './compare.css';
import './tryout.css';
