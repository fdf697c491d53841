/** Small drawings on buttons, in the colour of their text. */
const PATHS = {
  copy: 'M5 5V2.5h8.5V11H11M2.5 5H11v8.5H2.5z',
  save: 'M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11',
  script: 'M2.5 2.5h11v11h-11zM5 6l2 2-2 2M8.5 10.5H11',
  wide: 'M6 3H2.5v10H6M10 3h3.5v10H10M8 2v12',
  maximise: 'M9.5 2.5h4v4M13.5 2.5 9 7M6.5 13.5h-4v-4M2.5 13.5 7 9',
  restore: 'M13.5 6.5h-4v-4M9.5 6.5l4-4M2.5 9.5h4v4M6.5 9.5l-4 4',
  beside: 'M2.5 2.5h11v11h-11zM8.5 2.5v11M10.5 6h1M10.5 8.5h1',
  window: 'M7 2.5H2.5v11h11V9M9 2.5h4.5V7M13.5 2.5 8 8',
  edit: 'M3 13l.7-3L11 2.7 13.3 5 6 12.3zM9.5 4.2l2.3 2.3',
} as const;
export type Icon = keyof typeof PATHS;

/** A button that shows a drawing; `label` is its name and its tooltip. */
export function IconButton(props: { icon: Icon; label: string; text?: string; pressed?: boolean; disabled?: boolean; press: () => void }) {
  return (
    <button
      type="button"
      class="nbc-icon"
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={(event) => {
        event.stopPropagation();
        props.press();
      }}
    >
      {props.text}
      <svg viewBox="0 0 16 16" width="14" height="14" fill="none" stroke="currentColor" stroke-width="1.3" aria-hidden="true">
        <path d={PATHS[props.icon]} />
      </svg>
    </button>
  );
}
