/** The way to a notebook's kernel: requests over the comm target `nbcompile`, opened with the first one. */
import { signal, type ReadonlySignal, type Signal } from '@preact/signals';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel as Connection } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import { PlayError, type Kernel, type Progress } from '../explorer/host';
import { Requests, type Reply } from '../hosts/requests';

const TARGET = 'nbcompile';
const GONE = new Set(['dead', 'restarting', 'autorestarting', 'terminating']);

class CommKernel implements Kernel {
  readonly cancellable = true;
  private comm: Connection.IComm | null = null;
  private readonly requests: Requests;

  constructor(readonly connection: Connection.IKernelConnection) {
    this.requests = new Requests(
      (request) => void this.open().send(request as unknown as JSONObject),
      () => void connection.interrupt(),
    );
  }

  request<T>(method: string, params: object, progress?: (step: Progress) => void): Promise<T> {
    return this.requests.request<T>(method, params, progress);
  }

  cancel(): void {
    this.requests.cancel();
  }

  stopAll(): void {
    void this.connection.interrupt();
  }

  /** Nobody will answer any more. */
  close(): void {
    if (this.comm && !this.comm.isDisposed) this.comm.dispose();
    this.comm = null;
    this.requests.close();
  }

  private open(): Connection.IComm {
    if (this.comm && !this.comm.isDisposed) return this.comm;
    const comm = this.connection.createComm(TARGET);
    comm.onMsg = (message) => this.requests.receive(message.content.data as unknown as Reply);
    // A kernel that does not know the target closes the comm at once.
    comm.onClose = () => {
      this.comm = null;
      this.requests.close(
        new PlayError('nbcompile is not loaded', 'This kernel does not know nbcompile.', 'Run %load_ext nbcompile, then the cell.'),
      );
    };
    comm.open();
    this.comm = comm;
    return comm;
  }
}

const known = new WeakMap<ISessionContext, Signal<Kernel | null>>();

/** The kernel of a session while it lives: `null` before it is there, while it restarts and once it is dead. */
export function kernelOf(context: ISessionContext): ReadonlySignal<Kernel | null> {
  const found = known.get(context);
  if (found) return found;
  const kernel = signal<Kernel | null>(null);
  known.set(context, kernel);
  let current: CommKernel | null = null;
  const update = (): void => {
    const connection = context.session?.kernel ?? null;
    const there = connection !== null && !connection.isDisposed && !GONE.has(connection.status);
    if (there && current?.connection === connection) return;
    current?.close();
    current = there ? new CommKernel(connection) : null;
    kernel.value = current;
  };
  context.kernelChanged.connect(update);
  context.statusChanged.connect(update);
  context.connectionStatusChanged.connect(update);
  context.disposed.connect(update);
  update();
  return kernel;
}
