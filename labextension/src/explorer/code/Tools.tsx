import type { Signal } from '@preact/signals';
import type { Kernel } from '../../record/generated/record';
import type { Text } from '../../record/generated/scene';
import { ask } from '../play';
import { copy, download, fileName } from '../save';
import type { State } from '../state';
import { isEdited, start, type Edit } from './drafts';
import { IconButton } from './icons';
import { ending } from './languages';

interface Props {
  edit: Edit;
  sources: Record<string, string>;
  first: Text;
  /** The text that is looked at. */
  chosen: Text;
  said: Signal<string>;
  several: boolean;
}

/** What can be done with a kernel's text. */
export function Tools({ edit, sources, chosen, said, several }: Omit<Props, 'first'>) {
  const { state, kernel } = edit;
  const live = state.host.kernel.value !== null;
  const busy = state.play.step.value !== null;
  const lacks = !(chosen.language in sources);
  return (
    <span class="nbc-code-tools">
      <IconButton icon="copy" label={`Copy the ${chosen.title} text`} disabled={lacks} press={() => void copied(sources[chosen.language] ?? '', chosen, said)} />
      <IconButton icon="save" label={`Download the ${chosen.title} text`} disabled={lacks} press={() => download(fileName(kernel.name) + ending(chosen.language), sources[chosen.language] ?? '')} />
      <IconButton
        icon="script"
        label={live ? 'Download a script that runs this kernel alone' : `A script of this kernel alone needs a live kernel. ${state.host.needs}`}
        disabled={!live || busy}
        press={() => void script(state, kernel)}
      />
      <IconButton
        icon="wide"
        label={several ? 'Show the source beside it' : 'Show it wider'}
        pressed={state.wide.value}
        press={() => (state.wide.value = !state.wide.value)}
      />
    </span>
  );
}

/** The button that opens a kernel's text for editing. */
export function EditButton({ edit, sources, first }: Pick<Props, 'edit' | 'sources' | 'first'>) {
  const { state, kernel } = edit;
  const live = state.host.kernel.value !== null;
  const drafted = edit.drafts.value.has(kernel.id);
  return (
    <span class="nbc-code-tools">
      {isEdited(state, kernel) && <span class="nbc-edited" title="This kernel's text was edited here.">edited</span>}
      <IconButton
        icon="edit"
        text="edit"
        label={live ? `Edit the ${first.title} text and run it` : `Edit this kernel: that needs a live one. ${state.host.needs}`}
        pressed={drafted}
        disabled={!live || drafted}
        press={() => start(edit, sources[first.language] ?? '')}
      />
    </span>
  );
}

async function copied(whole: string, text: Text, said: Signal<string>): Promise<void> {
  said.value = (await copy(whole)) ? `${text.title} copied` : 'The browser does not let us copy here: download it instead.';
  setTimeout(() => (said.value = ''), 2500);
}

async function script(state: State, kernel: Kernel): Promise<void> {
  const answer = await ask<{ name: string; text: string }>(state, 'script', { kernel: kernel.id });
  if (answer) download(`${fileName(answer.name.replace(/\.py$/, ''))}.py`, answer.text);
}
