/** A recorded walk of Dynamo, played: what each step left on the stack and in the locals. */
import type { DynamoWalk, WalkCode, WalkInstruction, WalkStep } from '../../record/generated/record';

/** A step of a walk, and the frame that it left. */
export interface Moment {
  step: WalkStep;
  instruction: WalkInstruction | undefined;
  code: WalkCode | undefined;
  /** The symbolic stack, its top last. */
  stack: readonly string[];
  locals: ReadonlyMap<string, string>;
  /** Places of the steps whose calls lead here, outermost first. */
  callers: readonly number[];
}

interface Frame {
  stack: readonly string[];
  locals: ReadonlyMap<string, string>;
}

/** Of values on a stack, of locals and of callers: each step keeps its own, and a record may say that there are any number. */
const MOST = 300;
const EMPTY: Frame = { stack: [], locals: new Map() };

export class Playback {
  /** Places of the steps that made a node of a graph, and of those where it or the walk ends. */
  readonly nodes: readonly number[];
  readonly breaks: readonly number[];
  private readonly frames: Frame[] = [];
  private readonly parents: number[] = [];
  private readonly visits = new Map<number, number[]>();

  constructor(readonly walk: DynamoWalk) {
    const held = new Map<number, { frame: Frame; at: number }>();
    for (const [at, step] of walk.steps.entries()) {
      for (const depth of held.keys()) if (depth > step.depth) held.delete(depth);
      const frame = this.after(held.get(step.depth)?.frame ?? EMPTY, step);
      held.set(step.depth, { frame, at });
      this.frames.push(frame);
      this.parents.push(held.get(step.depth - 1)?.at ?? -1);
      const seen = this.visits.get(step.at);
      if (seen) seen.push(at);
      else this.visits.set(step.at, [at]);
    }
    const places = [...walk.steps.keys()];
    this.nodes = places.filter((at) => walk.steps[at]?.made.length);
    this.breaks = places.filter((at) => walk.steps[at]?.broke);
  }

  get count(): number {
    return this.walk.steps.length;
  }

  at(place: number): Moment | null {
    const [step, frame] = [this.walk.steps[place], this.frames[place]];
    if (!step || !frame) return null;
    const instruction = this.walk.instructions[step.at];
    const callers: number[] = [];
    for (let above = this.parents[place] ?? -1; above >= 0 && callers.length < MOST; above = this.parents[above] ?? -1) callers.push(above);
    callers.reverse();
    return { step, instruction, code: instruction && this.walk.codes[instruction.code], ...frame, callers };
  }

  /** Places in `walk.instructions` of a function's instructions that were followed, in its own order. */
  listing(code: number): number[] {
    const all = this.walk.instructions;
    const own = [...all.keys()].filter((place) => all[place]?.code === code);
    return own.sort((a, b) => (all[a]?.offset ?? 0) - (all[b]?.offset ?? 0));
  }

  /** The next step after `from` that follows this instruction, else the first that does. */
  visit(instruction: number, from: number): number {
    const seen = this.visits.get(instruction) ?? [];
    return seen.find((place) => place > from) ?? seen[0] ?? from;
  }

  /** How often an instruction was followed. */
  visited(instruction: number): number {
    return this.visits.get(instruction)?.length ?? 0;
  }

  private after(frame: Frame, step: WalkStep): Frame {
    const word = (place: number): string => this.walk.words[place] ?? '?';
    const kept = frame.stack.length === step.kept && !step.pushed.length;
    const pushed = step.pushed.slice(-MOST);
    const stack = kept ? frame.stack : [...frame.stack.slice(0, Math.max(0, Math.min(step.kept, MOST - pushed.length))), ...pushed.map(word)];
    if (!step.stored.length) return { stack, locals: frame.locals };
    const locals = new Map(frame.locals);
    for (let place = 0; place + 1 < step.stored.length; place += 2) {
      const [name, value] = [word(step.stored[place] ?? -1), step.stored[place + 1] ?? -1];
      if (value < 0) locals.delete(name);
      else if (locals.size < MOST || locals.has(name)) locals.set(name, word(value));
    }
    return { stack, locals };
  }
}
