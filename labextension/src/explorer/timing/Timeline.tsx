import type { Call } from '../../record/generated/scene';
import { litClass, pointing, type State } from '../state';
import { bytes, clip, count, percent, seconds } from '../units';

/** What the widths of a strip stand for. */
interface Measure {
  of(call: Call): number;
  text(value: number): string;
  title: string;
}

/** Times where every call has one, measured before predicted; else bytes: a mix would tell nothing. */
export function measure(calls: readonly Call[]): Measure {
  const kinds: [string, (call: Call) => number | null][] = [
    ['measured time of each call', (call) => call.seconds],
    ['time of each call, measured or predicted', (call) => call.seconds ?? call.predicted],
  ];
  for (const [title, of] of kinds) {
    if (calls.every((call) => of(call) !== null)) return { of: (call) => of(call) ?? 0, text: seconds, title };
  }
  return { of: (call) => call.bytes, text: bytes, title: 'bytes moved by each call; not every call has a time' };
}

/** The calls in the order they run, each as wide as its part; a strip a graph. */
export function Timeline({ state }: { state: State }) {
  const calls = state.data.scene?.calls ?? [];
  const measured = measure(calls);
  const total = calls.reduce((sum, call) => sum + measured.of(call), 0);
  if (!total) return null;
  const graphs = [...new Set(calls.map((call) => call.graph))];
  const sums = graphs.map((graph) => calls.filter((call) => call.graph === graph).reduce((sum, call) => sum + measured.of(call), 0));
  const longest = Math.max(...sums);
  return (
    <section class="nbc-timeline" aria-label="calls in order">
      <h4>In order <span class="nbc-quiet">{measured.title}</span></h4>
      {graphs.map((graph, place) => {
        const own = calls.filter((call) => call.graph === graph);
        const sum = sums[place] ?? 0;
        return (
          <div class="nbc-timeline-row">
            <span class="nbc-quiet nbc-timeline-name">{direction(graph)}</span>
            {/* The table below has the same calls for the keyboard and for readers who do not see this. */}
            <div class="nbc-timeline-strip" role="img" aria-label={`${direction(graph)}: ${count(own.length, 'call')}, ${measured.text(sum)}`} style={{ width: `${(100 * sum) / longest}%` }}>
              {own.map((call) => (
                <span
                  class={`nbc-timeline-call nbc-on-${call.fate} ${litClass(state.lit.value, [call.id])}`}
                  style={{ flexGrow: (1000 * measured.of(call)) / sum }}
                  title={`${call.label} ${call.name}: ${measured.text(measured.of(call))}, ${percent(measured.of(call) / total)}`}
                  {...pointing(state, { ids: [call.id] })}
                  tabIndex={-1}
                  aria-pressed={undefined}
                >
                  <span class={call.label.length > 4 ? 'nbc-timeline-long' : ''}>{clip(call.label, 9)}</span>
                </span>
              ))}
            </div>
            <span class="nbc-quiet nbc-timeline-sum">{measured.text(sum)}</span>
          </div>
        );
      })}
    </section>
  );
}

/** `g0 forward` of `g0.fw.fused`. */
function direction(graph: string): string {
  const [capture, side] = graph.split('.');
  return side === 'bw' ? `${capture} backward` : side === 'fw' ? `${capture} forward` : (capture ?? '');
}
