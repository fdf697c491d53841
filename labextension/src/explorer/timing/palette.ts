/** The explorer's colours and font, as they are where a chart stands: charts cannot read CSS variables. */

const NAMES = ['fused', 'library', 'break', 'bg', 'line', 'ink', 'quiet', 'eager'] as const;

export type Palette = Record<(typeof NAMES)[number] | 'font', string>;

export function palette(element: Element): Palette {
  const style = getComputedStyle(element);
  const colours = NAMES.map((name) => [name, style.getPropertyValue(`--nbc-${name}`).trim()]);
  return { ...(Object.fromEntries(colours) as Palette), font: style.fontFamily };
}
