import type { ComponentChild } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** Rows on each side of the present one that are drawn. */
const AROUND = 60;

interface Props {
  label: string;
  count: number;
  /** The present rows, which stay in sight. */
  first: number;
  last: number;
  row: (at: number, here: boolean) => ComponentChild;
}

/** A list of which the rows about the present ones are drawn, and these kept in sight. */
export function Rows({ label, count, first, last, row }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [from, to] = [Math.max(0, first - AROUND), Math.min(count, last + AROUND + 1)];
  useEffect(() => {
    const [list, here] = [place.current, place.current?.querySelector<HTMLElement>('.nbc-here')];
    if (!list || !here) return;
    // The list alone is scrolled: scrollIntoView would move the page under the reader.
    const [top, bottom] = [here.offsetTop, here.offsetTop + here.offsetHeight];
    if (top < list.scrollTop || bottom > list.scrollTop + list.clientHeight) list.scrollTop = Math.max(0, top - list.clientHeight / 3);
  }, [first, last]);
  return (
    <div class="nbc-walk-list nbc-code" role="list" aria-label={label} tabIndex={0} ref={place}>
      {from > 0 && <div class="nbc-quiet" role="listitem">… {from.toLocaleString('en')} above</div>}
      {Array.from({ length: Math.max(0, to - from) }, (_, n) => row(from + n, from + n >= first && from + n <= last))}
      {to < count && <div class="nbc-quiet" role="listitem">… {(count - to).toLocaleString('en')} below</div>}
    </div>
  );
}
