/** What the commands ask of a notebook's kernel, in Python that leaves no trace in the session. */
import { Notification } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

/** What a cell can be compared with. */
export interface Contestants {
  backends: string[];
  modes: string[];
}

const LOADED = '"nbcompile" in get_ipython().extension_manager.loaded';
const LOAD = 'get_ipython().extension_manager.load_extension("nbcompile") or "loaded"';
const NAMES = '__import__("json").dumps(__import__("nbcompile.backends.registry", fromlist=["names"]).names())';
const MODES = '__import__("json").dumps(list(__import__("nbcompile.options", fromlist=["MODES"]).MODES))';
const CLEAR = '__import__("nbcompile").clear_cache()';

/** Makes `%%compile` known to the notebook's kernel, with a notice if it was not. False: it cannot be. */
export async function load(panel: NotebookPanel): Promise<boolean> {
  const kernel = await kernelOf(panel);
  if (!kernel) return true; // JupyterLab asks for one when the cell is run
  if ((await value(kernel, LOADED)) === 'True') return true;
  try {
    await value(kernel, LOAD);
  } catch (error) {
    Notification.error(`nbcompile cannot be loaded into this kernel: ${told(error)}. Install it there: pip install nbcompile`);
    return false;
  }
  Notification.info('nbcompile was loaded into this kernel. To have it there always, begin the notebook with %load_ext nbcompile.', {
    autoClose: 8000,
  });
  return true;
}

export async function contestants(panel: NotebookPanel): Promise<Contestants> {
  const kernel = await kernelOf(panel);
  if (!kernel) throw new Error('this notebook has no kernel: choose one first');
  const [backends, modes] = await Promise.all([NAMES, MODES].map(async (code) => parsed(await value(kernel, code))));
  return { backends: backends ?? [], modes: modes ?? [] };
}

/** Empties the compile cache of the kernel's machine; bytes freed. */
export async function clearCache(panel: NotebookPanel): Promise<number> {
  const kernel = await kernelOf(panel);
  if (!kernel) throw new Error('this notebook has no kernel: choose one first');
  return Number(await value(kernel, CLEAR));
}

async function kernelOf(panel: NotebookPanel): Promise<Kernel.IKernelConnection | null> {
  await panel.sessionContext.ready;
  return panel.sessionContext.session?.kernel ?? null;
}

/** The repr of an expression. Throws what it raises. */
async function value(kernel: Kernel.IKernelConnection, expression: string): Promise<string> {
  const future = kernel.requestExecute({
    code: '', silent: true, store_history: false, allow_stdin: false, user_expressions: { value: expression },
  });
  const { content } = await future.done;
  if (content.status !== 'ok') throw new Error('the kernel did not answer');
  const answer = content.user_expressions['value'] as Answer;
  if (answer.status !== 'ok') throw new Error(`${answer.ename}: ${answer.evalue}`);
  return answer.data['text/plain'];
}

type Answer = { status: 'ok'; data: { 'text/plain': string } } | { status: 'error'; ename: string; evalue: string };

/** A list of names, from the repr of its JSON. */
function parsed(text: string): string[] {
  return JSON.parse(text.slice(1, -1)) as string[];
}

function told(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
