import type { ComponentChildren } from 'preact';

export interface Tab<T extends string> {
  id: T;
  label: string;
  title?: string;
}

/** A row of tabs that arrow keys move through, as the ARIA pattern says; `chosen` is null while none is open. */
export function Tabs<T extends string>(props: {
  label: string;
  tabs: readonly Tab<T>[];
  chosen: T | null;
  choose: (id: T) => void;
  children?: ComponentChildren;
}) {
  const step = (event: KeyboardEvent, by: number): void => {
    const place = Math.max(0, props.tabs.findIndex((tab) => tab.id === props.chosen));
    const next = props.tabs[(place + by + props.tabs.length) % props.tabs.length];
    if (!next) return;
    event.preventDefault();
    props.choose(next.id);
    const row = (event.currentTarget as HTMLElement).children;
    (row[props.tabs.indexOf(next)] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="nbc-tabbar">
      <div
        class="nbc-tabs"
        role="tablist"
        aria-label={props.label}
        onKeyDown={(event) => {
          if (event.key === 'ArrowRight') step(event, 1);
          if (event.key === 'ArrowLeft') step(event, -1);
        }}
      >
        {props.tabs.map((tab, place) => (
          <button
            type="button"
            role="tab"
            class="nbc-tab"
            title={tab.title}
            aria-selected={tab.id === props.chosen}
            tabIndex={tab.id === props.chosen || (props.chosen === null && !place) ? 0 : -1}
            onClick={() => props.choose(tab.id)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      {props.children}
    </div>
  );
}
