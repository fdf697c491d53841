import type { ComponentChildren } from 'preact';
import { useComputed, useSignal, type Signal } from '@preact/signals';
import { ASSEMBLY, askForAssembly, assemblyOf, assemblyText, type Assembly } from './code/assembly';
import { CodeText } from './code/CodeText';
import { change, editing, keep, reset, run, type Draft, type Edit } from './code/drafts';
import { EditBar } from './code/EditBar';
import { compileFor, lacking, type Elsewhere } from './code/elsewhere';
import { Facts } from './code/Facts';
import { FromElsewhere } from './code/FromElsewhere';
import { textsOf } from './code/listing';
import { NoAssembly } from './code/NoAssembly';
import { EditButton, Tools } from './code/Tools';
import type { Kernel } from '../record/generated/record';
import type { KernelCode, Text } from '../record/generated/scene';
import { compilerOf } from './compare/sources';
import type { State } from './state';
import { PaneTools } from './Pane';
import { Tabs } from './Tabs';
import { clip, percent } from './units';

/** The code that a compiler made: this record's, or that of one of its peers. */
export function CodePane({ state }: { state: State }) {
  const { peers } = state;
  const shown = peers.find((peer) => peer.data.record.id === state.compiler.value) ?? state;
  const tab = (each: State) => ({ id: each === state ? '' : each.data.record.id, label: compilerOf(each.data), title: `the kernels of ${compilerOf(each.data)}` });
  return (
    <>
      {peers.length > 0 && (
        <Tabs label="compiler" tabs={[state, ...peers].map(tab)} chosen={tab(shown).id} choose={(id) => (state.compiler.value = id)} />
      )}
      <KernelPane key={shown.data.record.id} state={shown} />
    </>
  );
}

/** The code of the kernel that is chosen. */
function KernelPane({ state }: { state: State }) {
  const { record } = state.data;
  const kernel = state.links.kernels.get(state.kernel.value);
  const drafts = useSignal<ReadonlyMap<string, Draft>>(new Map());
  const language = useSignal('');
  if (kernel) return <OfKernel state={state} kernel={kernel} drafts={drafts} language={language} />;
  const why = record.backend === 'nbcompile' ? 'No kernel was generated.' : `${record.backend} does not show its kernels.`;
  return <p class="nbc-empty">{why}</p>;
}

interface Props {
  state: State;
  kernel: Kernel;
  drafts: Signal<ReadonlyMap<string, Draft>>;
  /** Of the tab that was chosen last, whichever the kernel. */
  language: Signal<string>;
}

/** The code of one kernel, in every language that it has or that can be made. */
function OfKernel({ state, kernel, drafts, language }: Props) {
  const said = useSignal('');
  const code = useComputed(() => new Map((state.data.scene?.kernels ?? []).map((each) => [each.kernel, each])));
  const about = code.value.get(kernel.id);
  const { sources, texts, assembly } = held(state, kernel, about);
  const [first] = texts;
  const draft = drafts.value.get(kernel.id);
  // An assembly that nobody can make is nothing to show beside the source.
  const beside = texts.length > 1 && (state.host.kernel.value !== null || Object.keys(sources).length > 1);
  const { tabs, chosen, shown } = choice(texts, language.value, state.wide.value && beside, draft !== undefined);
  const more = draft ? [] : lacking(state, sources);
  const wanted = more.find((each) => each.id === language.value);
  const edit: Edit = { state, kernel, drafts, language: first?.language ?? '' };
  return (
    <>
      <div class="nbc-code-head">
        <KernelChoice state={state} />
        {chosen && first && (
          <Languages edit={edit} texts={tabs} more={more} chosen={wanted?.id ?? chosen.language} choose={(id) => (language.value = id)}>
            <EditButton edit={edit} sources={sources} first={first} />
          </Languages>
        )}
        <PaneTools state={state} pane="code" />
      </div>
      <div class="nbc-code-under">
        <Facts state={state} kernel={kernel} code={about} />
        {chosen && <Tools edit={edit} sources={sources} chosen={lookedAt(chosen, wanted)} said={said} several={beside} />}
      </div>
      {said.value && <p class="nbc-said" role="status">{said.value}</p>}
      <div class="nbc-code-texts">
        {wanted ? (
          <FromElsewhere key={`${kernel.id} ${wanted.id}`} state={state} kernel={kernel} wanted={wanted} />
        ) : (
          <Texts edit={edit} shown={shown} sources={sources} assembly={assembly} edited={draft && first} />
        )}
      </div>
      <Drafted edit={edit} />
    </>
  );
}

/** The text that tools are for: one from elsewhere is none of the record's. */
function lookedAt(chosen: Text, wanted: Elsewhere | undefined): Text {
  return wanted ? { ...chosen, language: wanted.id, title: wanted.title } : chosen;
}

/** What can be done with the edit of a kernel, while there is one. */
function Drafted({ edit }: { edit: Edit }) {
  const draft = edit.drafts.value.get(edit.kernel.id);
  if (!draft) return null;
  return (
    <EditBar
      state={edit.state}
      draft={draft}
      run={() => void run(edit)}
      reset={() => reset(edit, draft)}
      discard={() => change(edit, null)}
      keep={() => void keep(edit)}
    />
  );
}

/** The tabs of a kernel's texts, those that are made when they are asked for among them. */
function Languages(props: {
  edit: Edit;
  texts: readonly Text[];
  more: readonly Elsewhere[];
  chosen: string;
  choose: (id: string) => void;
  children: ComponentChildren;
}) {
  const { edit, texts, more, chosen, choose, children } = props;
  const { state, kernel } = edit;
  const tabs = [
    ...texts.map((text) => ({ id: text.language, label: text.title, title: text.about })),
    ...more.map((each) => ({ id: each.id, label: each.title, title: each.about })),
  ];
  const enter = (id: string): void => {
    choose(id);
    if (!state.host.kernel.value) return;
    const asked = more.find((each) => each.id === id);
    if (asked) void compileFor(state, asked);
    if (id === ASSEMBLY) void askForAssembly(state, kernel);
  };
  return <Tabs label="languages" tabs={tabs} chosen={chosen} choose={enter}>{children}</Tabs>;
}

/** The texts that are looked at; the one that is `edited` is that of the kernel's draft. */
function Texts(props: {
  edit: Edit;
  shown: readonly Text[];
  sources: Record<string, string>;
  assembly: Assembly | undefined;
  edited: Text | undefined;
}) {
  const { edit, shown, sources, assembly, edited } = props;
  const { state, kernel } = edit;
  const draft = edit.drafts.value.get(kernel.id);
  if (!shown.length) return <p class="nbc-empty">The record has no text of this kernel.</p>;
  return (
    <>
      {shown.map((text) =>
        text.language === ASSEMBLY && !assembly ? (
          <NoAssembly key={`${kernel.id} ${text.language}`} state={state} kernel={kernel} />
        ) : (
          <CodeText
            key={`${kernel.id} ${text.language}`}
            state={state}
            kernel={kernel}
            text={text}
            source={sources[text.language] ?? ''}
            listing={text.language === ASSEMBLY ? assembly?.listing : undefined}
            several={Object.keys(sources).length > 1}
            editing={draft && text === edited ? editing(edit, draft) : null}
          />
        ),
      )}
    </>
  );
}

/** All texts of a kernel: the record's, and the assembly of one in C. */
function held(state: State, kernel: Kernel, about: KernelCode | undefined) {
  const recorded = kernel.sources;
  const texts = textsOf(recorded, about);
  if (texts[0]?.language !== 'c') return { sources: recorded, texts, assembly: undefined };
  const assembly = assemblyOf(state, kernel);
  const sources = assembly ? { ...recorded, [ASSEMBLY]: assembly.listing.text } : recorded;
  return { sources, texts: [...texts, assemblyText(assembly)], assembly };
}

interface Choice {
  tabs: Text[];
  chosen: Text | undefined;
  shown: Text[];
}

/** Which texts there are to choose from, which is looked at, and which are shown: side by side if `wide`. */
function choice(texts: Text[], language: string, wide: boolean, drafted: boolean): Choice {
  const [first, ...made] = texts;
  if (!first) return { tabs: [], chosen: undefined, shown: [] };
  if (!wide || !made.length) {
    const chosen = drafted ? first : (texts.find((text) => text.language === language) ?? first);
    return { tabs: drafted ? [first] : texts, chosen, shown: [chosen] };
  }
  const chosen = made.find((text) => text.language === language) ?? nearest(made);
  return { tabs: made, chosen, shown: chosen ? [first, chosen] : [first] };
}

/** What is looked at beside the source at first: what the chip runs, as near as a person may want to read it. */
function nearest(made: readonly Text[]): Text | undefined {
  return made.find((text) => text.language === 'ptx' || text.language === 'amdgcn') ?? made[0];
}

function KernelChoice({ state }: { state: State }) {
  const name = (kernel: Kernel): string => {
    const call = state.calls.get(kernel.id);
    return `${call?.label ?? kernel.id}  ${clip(kernel.name, 44)}${call ? ` · ${percent(call.share)}` : ''}`;
  };
  return (
    <select
      class="nbc-kernels"
      aria-label="kernel"
      title="kernel, and its share of the bytes moved"
      value={state.kernel.value}
      onClick={(event) => event.stopPropagation()}
      onChange={(event) => state.choose(event.currentTarget.value)}
    >
      {state.data.record.kernels.map((kernel) => (
        <option value={kernel.id}>{name(kernel)}</option>
      ))}
    </select>
  );
}
