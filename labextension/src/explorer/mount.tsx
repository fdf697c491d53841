import { effect } from '@preact/signals';
import { Component, render, type ComponentChildren } from 'preact';
import { read, RecordError, type Unpacked } from '../record/read';
import { App } from './App';
import { mounted } from './compare/sources';
import { FOCUS_EVENT, LINE_EVENT, type FocusDetail, type Host, type LineDetail } from './host';
import { Play } from './play';
import { State } from './state';

export interface Explorer {
  /** `null` while nothing is shown: until the first payload has been read, and where one cannot be. */
  readonly state: State | null;
  /** Settles, and never rejects, when the last payload given is shown or it is told why it cannot be. */
  readonly ready: Promise<void>;
  /** Shows another payload in the same place, once it has been read; until then what is there stays. */
  update(payload: unknown): void;
  dispose(): void;
}

/** Draws a payload in `element`. A payload that cannot be read is told there, and nothing is thrown. */
export function mount(element: HTMLElement, payload: unknown, host: Host): Explorer {
  const explorer = new Mounted(element, host);
  explorer.update(payload);
  return explorer;
}

class Mounted implements Explorer {
  state: State | null = null;
  ready: Promise<void> = Promise.resolve();
  /** Counts what is to be shown: what was read too late is dropped. */
  private turn = 0;
  private readonly stops: (() => void)[] = [];
  private stopFocus: () => void = () => undefined;

  constructor(
    private readonly element: HTMLElement,
    private readonly host: Host,
  ) {
    element.classList.add('nbc');
    this.stops.push(
      effect(() => {
        element.classList.toggle('nbc-dark', host.theme.value === 'dark');
      }),
    );
    const onLine = (event: Event): void => {
      const { line } = (event as CustomEvent<LineDetail>).detail;
      this.state?.hover(line === null ? null : { ids: [], line });
    };
    element.addEventListener(LINE_EVENT, onLine);
    this.stops.push(() => element.removeEventListener(LINE_EVENT, onLine));
  }

  update(payload: unknown): void {
    if (!this.state) render(<p class="nbc-reading" role="status">Reading the record…</p>, this.element);
    this.ready = this.open(payload, ++this.turn);
  }

  private async open(payload: unknown, turn: number): Promise<void> {
    const play: Play = new Play((next) => {
      if (this.state?.play === play) this.show(next, play);
    });
    try {
      const data = await read(payload);
      if (turn === this.turn) this.show(data, play);
    } catch (error) {
      if (turn !== this.turn) return;
      this.stopFocus();
      this.enter(null);
      render(<Failure error={error} />, this.element);
    }
  }

  private show(data: Unpacked, play: Play): void {
    this.stopFocus();
    const state = new State(data, this.host, play);
    // The same record again is one that has grown: what was chosen in it stays chosen.
    if (this.state && (this.state.play === play || this.state.data.record.id === data.record.id)) state.takeOver(this.state);
    this.enter(state);
    this.element.dataset['record'] = state.data.record.id;
    // A record of another id is another explorer: nothing of the old one's choices holds for it.
    render(<Caught key={state.data.record.id}><App state={state} /></Caught>, this.element);
    this.stopFocus = effect(() => {
      const lit = state.lit.value;
      const detail: FocusDetail = { record: state.data.record.id, lines: lit && [...lit.lines] };
      this.element.dispatchEvent(new CustomEvent(FOCUS_EVENT, { detail, bubbles: true, composed: true }));
    });
  }

  /** Other explorers of the page can compare theirs with what is shown here. */
  private enter(state: State | null): void {
    const rest = mounted.peek().filter((each) => each !== this.state);
    mounted.value = state ? [...rest, state] : rest;
    this.state = state;
  }

  dispose(): void {
    this.turn++;
    this.stopFocus();
    this.enter(null);
    for (const stop of this.stops) stop();
    render(null, this.element);
  }
}

function Failure({ error }: { error: unknown }) {
  const known = error instanceof RecordError;
  return (
    <div class="nbc-failure" role="alert">
      <b>{known ? 'This record cannot be shown.' : 'The explorer failed.'}</b>
      <p>{error instanceof Error ? error.message : String(error)}</p>
      <p class="nbc-quiet">{known ? error.advice : 'The record itself is unharmed: its text and HTML forms still show it.'}</p>
    </div>
  );
}

/** A view that fails shows why in place of the explorer, and not an empty cell. */
class Caught extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null as unknown };
  static override getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }
  override render() {
    return this.state.error === null ? this.props.children : <Failure error={this.state.error} />;
  }
}
