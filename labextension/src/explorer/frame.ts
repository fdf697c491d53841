/** The next frame of the window that an element stands in: the page's own may be hidden behind that. Returns what
 * takes it back. */
export function nextFrame(element: Element | null | undefined, run: () => void): () => void {
  const own = element?.ownerDocument.defaultView ?? window;
  const frame = own.requestAnimationFrame(run);
  return () => own.cancelAnimationFrame(frame);
}
