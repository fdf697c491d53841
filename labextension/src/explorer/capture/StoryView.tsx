import { useSignal } from '@preact/signals';
import type { State } from '../state';
import { Made, ShowGraph } from './Made';
import { Rows } from './Rows';
import { Steps } from './Steps';
import type { Story } from './stories';

/** A stage of the compiler, step by step: what it reads on the left, what became of it on the right. */
export function StoryView({ state, story, empty }: { state: State; story: Story; empty: string }) {
  const step = useSignal(0);
  const now = story.steps[step.value];
  if (!now) return <p class="nbc-empty">{empty}</p>;
  const go = (to: number): void => {
    step.value = to;
    const next = story.steps[to];
    const ids = next && (next.made.length ? [...next.made] : [...next.from]);
    state.pin(ids?.length ? { ids } : null);
  };
  const byRow = (at: number): number => story.steps.findIndex((each) => each.first <= at && at <= each.last);
  return (
    <Steps label={`${story.noun} by ${story.noun}`} noun={story.noun} count={story.steps.length} step={step} go={go} said={now.said}>
      <div class="nbc-walk nbc-walk-two">
        <Rows
          label={`${story.noun} list`}
          count={story.rows.length}
          first={now.first}
          last={now.last}
          row={(at, here) => {
            const row = story.rows[at];
            const to = byRow(at);
            return (
              <div key={at} role="listitem" class={`nbc-walk-row ${here ? 'nbc-here' : ''}`} aria-current={here ? 'step' : undefined} onClick={() => to >= 0 && go(to)}>
                <code>{row?.text || '\u00a0'}</code>
                {row?.side && <span class="nbc-quiet">{row.side}</span>}
              </div>
            );
          }}
        />
        <div class="nbc-walk-facts">
          <p>{now.said}</p>
          {now.made.length > 0 && <Made state={state} ids={now.made} />}
          {now.graph && <ShowGraph state={state} id={now.graph} />}
        </div>
      </div>
    </Steps>
  );
}
