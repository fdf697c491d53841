/** Source text in colour, as text nodes: Lezer's parsers and its own highlighter. */
import { cppLanguage } from '@codemirror/lang-cpp';
import { pythonLanguage } from '@codemirror/lang-python';
import { classHighlighter, highlightCode } from '@lezer/highlight';
import type { ComponentChild } from 'preact';

const PARSERS = { python: pythonLanguage.parser, c: cppLanguage.parser };
/** Longer texts stay plain: they are not read, and the parse would be felt. */
const MAX_LENGTH = 200_000;

/** The lines of `text`, each as spans with Lezer's `tok-` classes. */
export function highlighted(text: string, language: keyof typeof PARSERS): ComponentChild[][] {
  const lines: ComponentChild[][] = [[]];
  const last = (): ComponentChild[] => lines[lines.length - 1] as ComponentChild[];
  if (text.length > MAX_LENGTH) return text.split('\n').map((line) => [line]);
  highlightCode(
    text,
    PARSERS[language].parse(text),
    classHighlighter,
    (code, classes) => last().push(classes ? <span class={classes}>{code}</span> : code),
    () => lines.push([]),
  );
  return lines;
}
