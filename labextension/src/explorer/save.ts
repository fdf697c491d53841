/** Taking a text out of the explorer. */

/** Saves a text as a file of this name. */
export function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser takes the data when it has started the download, which is after this.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** What a record calls something as the name of a file: no path, nothing hidden, no other ending. */
export function fileName(name: string): string {
  return name.replace(/[^\w-]+/g, '_').slice(0, 80) || 'kernel';
}

/** Puts a text on the clipboard; false where the browser does not let us. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
