import { effect } from '@preact/signals';
import { Component, render, type ComponentChildren } from 'preact';
import { RecordError, unpack, type Unpacked } from '../record/unpack';
import { App } from './App';
import { mounted } from './compare/sources';
import { FOCUS_EVENT, LINE_EVENT, type FocusDetail, type Host, type LineDetail } from './host';
import { Play } from './play';
import { State } from './state';

export interface Explorer {
  readonly state: State | null;
  /** Shows another payload in the same place. */
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
    const play: Play = new Play((next) => (this.state?.play === play ? this.show(next, play) : null));
    this.show(payload, play);
  }

  private show(payload: unknown, play: Play): Unpacked | null {
    this.stopFocus();
    let state: State;
    try {
      state = new State(unpack(payload), this.host, payload, play);
      if (this.state?.play === play) state.takeOver(this.state);
    } catch (error) {
      this.enter(null);
      render(<Failure error={error} />, this.element);
      return null;
    }
    this.enter(state);
    this.element.dataset['record'] = state.data.record.id;
    // A record of another id is another explorer: nothing of the old one's choices holds for it.
    render(<Caught key={state.data.record.id}><App state={state} /></Caught>, this.element);
    this.stopFocus = effect(() => {
      const lit = state.lit.value;
      const detail: FocusDetail = { record: state.data.record.id, lines: lit && [...lit.lines] };
      this.element.dispatchEvent(new CustomEvent(FOCUS_EVENT, { detail, bubbles: true, composed: true }));
    });
    return state.data;
  }

  /** Other explorers of the page can compare theirs with what is shown here. */
  private enter(state: State | null): void {
    const rest = mounted.peek().filter((each) => each !== this.state);
    mounted.value = state ? [...rest, state] : rest;
    this.state = state;
  }

  dispose(): void {
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
