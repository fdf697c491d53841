/** The dialog of "Compare…": which backends, in which modes. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import type { Contestants } from './session';

/** Backends that know torch.compile's modes. */
const WITH_MODES = new Set(['nbcompile', 'inductor']);
const FIRST = ['eager', 'nbcompile', 'inductor'];

class Choice extends Widget implements Dialog.IBodyWidget<string[]> {
  private readonly boxes: HTMLInputElement[] = [];

  constructor({ backends, modes }: Contestants, chosen: readonly string[]) {
    super();
    this.addClass('nbc-choice');
    for (const backend of [...new Set(['eager', ...FIRST.filter((name) => backends.includes(name)), ...backends])]) {
      const others = WITH_MODES.has(backend) ? modes.filter((mode) => mode !== 'default') : [];
      const group = document.createElement('fieldset');
      const legend = document.createElement('legend');
      legend.textContent = backend;
      group.append(legend, this.box(backend, others.length ? 'default' : 'as it is', chosen));
      group.append(...others.map((mode) => this.box(`${backend}:${mode}`, mode, chosen)));
      this.node.append(group);
    }
  }

  getValue(): string[] {
    return this.boxes.filter((box) => box.checked).map((box) => box.value);
  }

  private box(name: string, label: string, chosen: readonly string[]): HTMLElement {
    const box = document.createElement('input');
    Object.assign(box, { type: 'checkbox', value: name, checked: chosen.includes(name) });
    this.boxes.push(box);
    const element = document.createElement('label');
    element.append(box, ` ${label}`);
    return element;
  }
}

/** What was chosen; `null`: nothing, or the dialog was dismissed. */
export async function choose(known: Contestants, chosen: readonly string[]): Promise<string[] | null> {
  const result = await showDialog({
    title: 'Compare this cell',
    body: new Choice(known, chosen.length ? chosen : FIRST),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Compare' })],
  });
  return result.button.accept && result.value?.length ? result.value : null;
}
