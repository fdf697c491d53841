/** The explorer beside the notebook: follows the active cell, or stays with one; pins compilations. */
import { computed, effect, signal, untracked, type Signal } from '@preact/signals';
import type { CodeCell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';
import { render } from 'preact';
import { FOCUS_EVENT, type FocusDetail } from '../explorer/host';
import { compileIcon } from './icons';
import { ExplorerWidget } from './explorer';
import { kernelOf } from './kernel';
import { light, point } from './linking';
import { CURSOR_EVENT } from './marks';
import { payloadOf } from './outputs';
import { pins, titleOf, unpin, type Pin } from './pins';
import { settings } from './settings';

/** A cell with a compilation, and the notebook that it is in. */
export interface Place {
  panel: NotebookPanel;
  cell: CodeCell;
}

export interface Actions {
  pin(payload: object): void;
  /** `null` where there is no main area to open anything in. */
  openInMain: ((place: Place) => void) | null;
}

export class Beside extends Widget {
  private readonly place = signal<Place | null>(null);
  private readonly payload = signal<object | null>(null);
  private readonly comparing = signal(false);
  private readonly header = new Widget();
  private readonly explorer: ExplorerWidget;
  private readonly stops: (() => void)[] = [];

  /** `fixed`: the cell to stay with; without one, the cell that is active in the notebook shown. */
  constructor(
    private readonly tracker: INotebookTracker,
    private readonly actions: Actions,
    private readonly fixed: Place | null = null,
  ) {
    super();
    this.addClass('nbc-beside');
    this.title.icon = compileIcon;
    this.title.caption = 'nbcompile explorer';
    this.explorer = new ExplorerWidget(
      computed(() => (this.place.value ? kernelOf(this.place.value.panel.sessionContext).value : null)),
    );
    const layout = new PanelLayout();
    layout.addWidget(this.header);
    layout.addWidget(this.explorer);
    this.layout = layout;
    this.stops.push(effect(() => this.drawHeader()), effect(() => this.drawExplorer()));
    this.listen();
    if (fixed) this.settle(fixed);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.settle(null);
    for (const stop of this.stops) stop();
    render(null, this.header.node);
    super.dispose();
  }

  /** What is shown, if anything is. */
  get shown(): object | null {
    return this.payload.value;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.look();
  }

  private listen(): void {
    const look = (): void => this.look();
    this.tracker.activeCellChanged.connect(look);
    this.tracker.currentChanged.connect(look);
    this.stops.push(() => {
      this.tracker.activeCellChanged.disconnect(look);
      this.tracker.currentChanged.disconnect(look);
    });
    const onCursor = (event: Event): void => {
      const cell = this.place.value?.cell.node;
      if (cell && event.target instanceof Node && cell.contains(event.target)) {
        point(this.node, (event as CustomEvent<{ line: number | null }>).detail.line);
      }
    };
    document.addEventListener(CURSOR_EVENT, onCursor);
    this.stops.push(() => document.removeEventListener(CURSOR_EVENT, onCursor));
    this.node.addEventListener(FOCUS_EVENT, (event) => {
      const cell = this.place.value?.cell.node;
      if (cell && !this.comparing.value) light(cell, (event as CustomEvent<FocusDetail>).detail.lines);
    });
  }

  /** Follows to where the reader is. A cell without a compilation changes nothing. */
  private look(): void {
    if (this.fixed || !this.isVisible || (this.place.value && !settings.follow.value)) return;
    const panel = this.tracker.currentWidget;
    if (!panel) return;
    const cells = panel.content.widgets.filter((cell): cell is CodeCell => cell.model.type === 'code');
    const active = cells.find((cell) => cell === panel.content.activeCell && payloadOf(cell.model.outputs));
    if (active) this.settle({ panel, cell: active });
    else if (this.place.value?.panel !== panel) {
      const last = cells.reverse().find((cell) => payloadOf(cell.model.outputs));
      if (last) this.settle({ panel, cell: last });
    }
  }

  private settle(place: Place | null): void {
    const was = this.place.value;
    if (was?.cell === place?.cell) return;
    was?.cell.model.outputs.changed.disconnect(this.reread, this);
    was?.cell.disposed.disconnect(this.leave, this);
    place?.cell.model.outputs.changed.connect(this.reread, this);
    place?.cell.disposed.connect(this.leave, this);
    this.place.value = place;
    this.payload.value = place && payloadOf(place.cell.model.outputs);
  }

  private reread(): void {
    const place = this.place.value;
    // While the cell runs there is none: the last one stays.
    this.payload.value = (place && payloadOf(place.cell.model.outputs)) ?? this.payload.value;
  }

  private leave(): void {
    this.settle(null);
  }

  private drawExplorer(): void {
    const payload = this.payload.value;
    const [last, ...others] = this.comparing.value ? [...pins.value].reverse() : [];
    this.toggleClass('nbc-beside-compared', others.length > 0);
    untracked(() => {
      if (last && others.length) void this.explorer.compare(last.payload, others.reverse().map((each) => each.payload));
      else if (payload) void this.explorer.draw(payload).then(() => this.explorer.closeOthers());
      else this.explorer.say('Run a %%compile cell: its explorer stands here while you work in the notebook.');
    });
  }

  private drawHeader(): void {
    const { place, payload, comparing } = this;
    // One that stays with its cell is in the main area already.
    const actions = this.fixed ? { ...this.actions, openInMain: null } : this.actions;
    render(<Header place={place} payload={payload} comparing={comparing} pinned={pins.value} actions={actions} />, this.header.node);
  }
}

interface HeaderProps {
  place: Signal<Place | null>;
  payload: Signal<object | null>;
  comparing: Signal<boolean>;
  pinned: readonly Pin[];
  actions: Actions;
}

function Header({ place, payload, comparing, pinned, actions }: HeaderProps) {
  const [here, shown] = [place.value, payload.value];
  const compared = comparing.value && pinned.length > 1;
  const { openInMain } = actions;
  return (
    <div class="nbc-beside-head">
      <div class="nbc-beside-row">
        <b>{compared ? 'What is pinned' : shown ? titleOf(shown) : 'nbcompile'}</b>
        {here && !compared && <span class="nbc-beside-quiet">{here.panel.title.label}</span>}
        <span class="nbc-beside-gap" />
        {shown && !compared && (
          <button type="button" onClick={() => actions.pin(shown)} title="Put this compilation aside, to compare it with others">
            Pin
          </button>
        )}
        {here && openInMain && !compared && (
          <button type="button" onClick={() => openInMain(here)} title="Open this explorer in the main area">
            Open wide
          </button>
        )}
      </div>
      {pinned.length > 0 && (
        <div class="nbc-beside-row" role="group" aria-label="pinned compilations">
          {pinned.map((each) => (
            <span class="nbc-beside-pin" key={each.id}>
              {each.title}
              <button type="button" aria-label={`unpin ${each.title}`} onClick={() => unpin(each.id)}>×</button>
            </span>
          ))}
          <span class="nbc-beside-gap" />
          <button
            type="button" aria-pressed={compared} disabled={pinned.length < 2} onClick={() => (comparing.value = !comparing.value)}
            title={pinned.length < 2 ? 'Pin another one to compare' : 'The one pinned last, beside the others'}
          >
            Compare
          </button>
        </div>
      )}
    </div>
  );
}
