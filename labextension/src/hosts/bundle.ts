/**
 * Both hosts that have no bundler of their own are this one module: its default export is the widget, and in a
 * stand-alone file, whose root element says that it is one, it opens the records that stand there.
 */
import { openPage } from './page';
import widget from './widget';

if (document.documentElement.dataset['nbcompile'] === 'page') openPage();

export default widget;
