/** The user's settings (schema/plugin.json), as signals that the parts of the plugin follow. */
import { signal } from '@preact/signals';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

export const PLUGIN = 'nbcompile:plugin';

export const settings = {
  /** Gutter marks beside the lines of a compiled cell. */
  marks: signal(true),
  /** Tints of the lines themselves. */
  tint: signal(false),
  /** Cards over the lines. */
  cards: signal(true),
  /** The line with the cursor lights its kernels. */
  cursor: signal(true),
  /** The side panel shows the active cell. */
  follow: signal(true),
};

export async function follow(registry: ISettingRegistry): Promise<void> {
  const loaded = await registry.load(PLUGIN);
  const update = (): void => {
    for (const [name, each] of Object.entries(settings)) each.value = loaded.get(name).composite as boolean;
  };
  loaded.changed.connect(update);
  update();
}
