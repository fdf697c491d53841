/** The explorer as an anywidget: where there is no Lab plugin (VS Code, Colab), and wherever it is asked for. */
import { signal } from '@preact/signals';
import { mount } from '../explorer/mount';
import type { Charts, Host, Kernel } from '../explorer/host';
import { Requests, type Reply } from './requests';
import { watchTheme } from './theme';

/** What of anywidget's model we use. */
interface Model {
  get(name: string): unknown;
  on(name: string, callback: (message: never) => void): void;
  off(name: string, callback: (message: never) => void): void;
  send(content: unknown): void;
}

export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    const requests = new Requests((message) => model.send(message));
    const onMessage = (message: Reply): void => requests.receive(message);
    model.on('msg:custom', onMessage);
    const host: Host = {
      theme: watchTheme(),
      kernel: signal<Kernel | null>(requests),
      needs: 'The kernel of this widget is gone: run the cell again.',
      open: signal(true),
      charts: () => charts(requests),
    };
    const explorer = mount(el, model.get('payload'), host);
    const onPayload = (): void => explorer.update(model.get('payload'));
    model.on('change:payload', onPayload);
    return () => {
      model.off('msg:custom', onMessage);
      model.off('change:payload', onPayload);
      requests.close();
      explorer.dispose();
    };
  },
};

let loaded: Promise<Charts> | null = null;

/** The chart library, sent by the kernel when the first chart is shown. */
function charts(requests: Requests): Promise<Charts> {
  loaded ??= requests.request<{ script: string }>('charts', {}).then(({ script }) => {
    const element = document.createElement('script');
    element.textContent = script;
    document.head.append(element);
    if (!window.Plotly) throw new Error('The chart library did not load.');
    return window.Plotly;
  });
  return loaded;
}
