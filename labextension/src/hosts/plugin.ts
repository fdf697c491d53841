import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
const plugin: JupyterFrontEndPlugin<void> = { id: 'nbcompile:plugin', autoStart: true, activate: () => undefined };
export default plugin;
