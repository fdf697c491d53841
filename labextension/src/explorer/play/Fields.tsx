import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Settings } from '../play';
import { fromSlider, STEPS, toSlider, type Controls, type Size } from './controls';

/** Milliseconds that a slider rests before what it says is run. */
const PAUSE = 350;

interface Props {
  controls: Controls;
  /** What is chosen and was not run yet. */
  draft: Settings;
  disabled: boolean;
  choose(change: Settings): void;
}

/** The controls themselves; what they were set to goes to `choose`. */
export function Fields({ controls, draft, disabled, choose }: Props) {
  const { backends, targets, modes, dtypes, sizes } = controls;
  const dtype = draft.dtype ?? controls.dtype;
  const fuse = draft.fuse ?? controls.fuse;
  const fuses = (draft.backend ?? controls.backend) === 'nbcompile';
  return (
    <fieldset class="nbc-fields" disabled={disabled}>
      <div class="nbc-fields-row">
        <Choice label="backend" value={draft.backend ?? controls.backend} values={backends} choose={(backend) => choose({ backend })} />
        {fuses && targets && <Choice label="target" value={draft.target ?? controls.target ?? 'auto'} values={targets} names={{ auto: 'this machine' }} choose={(target) => choose({ target })} />}
        <Choice label="mode" value={draft.mode ?? controls.mode} values={modes} choose={(mode) => choose({ mode })} />
        <Choice
          label="dtype"
          value={dtype}
          values={dtypes.includes(dtype) ? dtypes : [dtype, ...dtypes]}
          names={{ '': 'none', mixed: 'mixed' }}
          choose={(chosen) => choose({ dtype: chosen })}
        />
        <Dynamic value={draft.dynamic === undefined ? controls.dynamic : draft.dynamic} choose={(dynamic) => choose({ dynamic })} />
        <div class="nbc-control">
          <span class="nbc-quiet">fusion</span>
          <span class="nbc-control-switch">
            <button
              type="button" role="switch" class="nbc-switch" aria-checked={fuse} aria-label="fusion" disabled={!fuses}
              title={fuses ? '' : 'Only nbcompile’s own fusion can be switched off.'} onClick={() => choose({ fuse: !fuse })}
            >
              <i />
            </button>
          </span>
        </div>
      </div>
      <div class="nbc-fields-row">
        {sizes.map((size) => (
          <SizeSlider key={size.name} size={size} value={draft.sizes?.[size.name] ?? size.extent} choose={(extent) => choose({ sizes: { [size.name]: extent } })} />
        ))}
      </div>
    </fieldset>
  );
}

function Choice(props: { label: string; value: string; values: readonly string[]; names?: Record<string, string>; choose(value: string): void }) {
  return (
    <label class="nbc-control">
      <span class="nbc-quiet">{props.label}</span>
      <select class="nbc-field" value={props.value} onChange={(event) => props.choose(event.currentTarget.value)}>
        {props.values.map((each) => <option value={each} selected={each === props.value}>{props.names?.[each] ?? each}</option>)}
      </select>
    </label>
  );
}

const DYNAMIC: [string, boolean | null][] = [
  ['auto', null],
  ['yes', true],
  ['no', false],
];

function Dynamic({ value, choose }: { value: boolean | null; choose(value: boolean | null): void }) {
  return (
    <div class="nbc-control" role="radiogroup" aria-label="dynamic shapes">
      <span class="nbc-quiet">dynamic shapes</span>
      <span class="nbc-segments">
        {DYNAMIC.map(([name, each]) => (
          <button type="button" role="radio" class="nbc-segment" aria-checked={each === value} onClick={() => each !== value && choose(each)}>{name}</button>
        ))}
      </span>
    </div>
  );
}

/** An extent by its logarithm, with its number beside it; chosen when it is let go of. */
function SizeSlider({ size, value, choose }: { size: Size; value: number; choose(extent: number): void }) {
  // The slider's own place while it is moved: several may stand for one extent.
  const moved = useSignal<number | null>(null);
  const waiting = useRef(0);
  useEffect(() => () => window.clearTimeout(waiting.current), []);
  const shown = moved.value === null ? value : fromSlider(moved.value, size);
  const settle = (extent: number): void => {
    window.clearTimeout(waiting.current);
    moved.value = null;
    const within = Math.min(size.high, Math.max(size.low, Math.round(extent)));
    if (within && within !== value) choose(within);
  };
  const where = size.where.join(', ');
  return (
    <div class="nbc-control nbc-control-size">
      <span class="nbc-quiet" title={where}>
        <span class="nbc-code nbc-size-where">{where}</span>
        {size.extent !== Number(size.name) && ` was ${size.name}`}
      </span>
      <span class="nbc-size">
        <input
          type="range" class="nbc-slider" min={0} max={STEPS} step={STEPS / 100} value={moved.value ?? toSlider(value, size)}
          aria-label={`size of ${where}`} aria-valuetext={String(shown)}
          onInput={(event) => {
            window.clearTimeout(waiting.current);
            moved.value = Number(event.currentTarget.value);
          }}
          onChange={(event) => {
            // An arrow key lets go after every step.
            const extent = fromSlider(Number(event.currentTarget.value), size);
            window.clearTimeout(waiting.current);
            waiting.current = window.setTimeout(() => settle(extent), PAUSE);
          }}
        />
        <input
          type="number" class="nbc-field nbc-extent" min={size.low} max={size.high} value={shown} aria-label={`size of ${where}, as a number`}
          onChange={(event) => settle(Number(event.currentTarget.value))}
          onKeyDown={(event) => {
            // A notebook takes Enter for itself, and no change would come of it.
            if (event.key !== 'Enter') return;
            event.preventDefault();
            event.stopPropagation();
            settle(Number(event.currentTarget.value));
          }}
        />
      </span>
    </div>
  );
}
