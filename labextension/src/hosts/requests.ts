/** Requests to a kernel and what comes back, over any channel that carries JSON messages. */
import { PlayError, type Kernel, type Progress } from '../explorer/host';

export interface Request {
  id: string;
  method: string;
  params: object;
}

export type Reply = { id: string } & (
  | { kind: 'begun' }
  | ({ kind: 'progress' } & Progress)
  | { kind: 'result'; value: unknown }
  | { kind: 'error'; error: Failure }
);

interface Failure {
  title: string;
  message: string;
  advice?: string;
  line?: number | null;
  cancelled?: boolean;
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: PlayError): void;
  progress?: ((step: Progress) => void) | undefined;
  begun: boolean;
  /** Then a result that comes all the same is not wanted any more. */
  cancelled: boolean;
  /** When it was last interrupted, in ms. */
  interrupted?: number;
}

/** Python drops an interrupt that comes while it frees something: what goes on for so long (ms) is asked again. */
const PATIENCE = 1000;

/** `interrupt`: how the host stops a kernel, where it can. */
export class Requests implements Kernel {
  private readonly waiting = new Map<string, Waiting>();
  /** Two views of one widget share its channel: each hears the answers to both. */
  private readonly own = crypto.getRandomValues(new Uint32Array(1))[0]?.toString(36) ?? '';
  private last = 0;

  constructor(
    private readonly send: (request: Request) => void,
    private readonly interrupt: (() => void) | null = null,
  ) {}

  request<T>(method: string, params: object, progress?: (step: Progress) => void): Promise<T> {
    const id = `${this.own}-${++this.last}`;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: unknown) => void, reject, progress, begun: false, cancelled: false });
      this.send({ id, method, params });
    });
  }

  receive(reply: Reply): void {
    const waiting = this.waiting.get(reply.id);
    if (!waiting) return;
    if (reply.kind === 'begun') {
      waiting.begun = true;
      if (waiting.cancelled) this.stop(waiting);
      return;
    }
    if (reply.kind === 'progress') {
      if (waiting.interrupted !== undefined && Date.now() - waiting.interrupted > PATIENCE) this.stop(waiting);
      waiting.progress?.(reply);
      return;
    }
    this.waiting.delete(reply.id);
    if (reply.kind === 'error') waiting.reject(failure(reply.error));
    else if (waiting.cancelled) waiting.reject(new PlayError('Cancelled', '', undefined, undefined, true));
    else waiting.resolve(reply.value);
  }

  /** A kernel that has not begun would ignore an interrupt: it comes when the kernel has. */
  cancel(): void {
    for (const each of this.waiting.values()) {
      each.cancelled = true;
      if (each.begun) this.stop(each);
    }
  }

  private stop(waiting: Waiting): void {
    waiting.interrupted = Date.now();
    this.interrupt?.();
  }

  /** Whether {@link cancel} can do anything; if not, the kernel's own interrupt button can. */
  get cancellable(): boolean {
    return this.interrupt !== null;
  }

  /** The channel is gone: nobody will answer. */
  close(error = new PlayError('No kernel', 'The kernel is gone.')): void {
    for (const each of this.waiting.values()) each.reject(error);
    this.waiting.clear();
  }
}

function failure(error: Failure): PlayError {
  return new PlayError(error.title, error.message, error.advice, error.line, error.cancelled);
}
