/** The payload in a cell's outputs. */
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { IOutputModel } from '@jupyterlab/rendermime';
import { MIME } from './attach';

const CAN_HOLD = new Set(['display_data', 'execute_result', 'update_display_data']);
/** An output copies its data each time that it is asked for them: asked once, until it says that they changed. */
const known = new WeakMap<IOutputModel, object | null>();
const watched = new WeakSet<IOutputModel>();

/** The last payload in these outputs, the same object each time; `null` if there is none. */
export function payloadOf(outputs: ICodeCellModel['outputs']): object | null {
  for (let place = outputs.length - 1; place >= 0; place--) {
    const output = outputs.get(place);
    const payload = CAN_HOLD.has(output.type) ? read(output) : null;
    if (payload) return payload;
  }
  return null;
}

function read(output: IOutputModel): object | null {
  let payload = known.get(output);
  if (payload === undefined) {
    const data = output.data[MIME];
    payload = data !== null && typeof data === 'object' ? data : null;
    known.set(output, payload);
    if (!watched.has(output)) output.changed.connect((changed) => known.delete(changed));
    watched.add(output);
  }
  return payload;
}
