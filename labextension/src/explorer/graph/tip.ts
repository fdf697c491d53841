/** What is said of the box under the pointer, and where. */

/** Beside the pointer, on the side where there is more room: its distance from that corner of the frame. */
export interface Tip {
  left?: number;
  right?: number;
  top?: number;
  bottom?: number;
  lines: string[];
}

/** Where a tip stands for a pointer over this frame. */
export function cornerFor(event: MouseEvent, frame: DOMRect): Omit<Tip, 'lines'> {
  return {
    ...(event.clientX < frame.left + frame.width / 2 ? { left: event.clientX - frame.left + 14 } : { right: frame.right - event.clientX + 10 }),
    ...(event.clientY < frame.top + frame.height / 2 ? { top: event.clientY - frame.top + 18 } : { bottom: frame.bottom - event.clientY + 10 }),
  };
}
