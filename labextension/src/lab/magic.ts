/**
 * The language of a `%%compile` cell: its magic line has words of its own, and the rest is Python that never
 * sees it. (JupyterLab reads the whole cell as Python, where a quote or a bracket on the magic line would
 * swallow what follows.)
 */
import { pythonLanguage } from '@codemirror/lang-python';
import { Language } from '@codemirror/language';
import { Compartment, EditorState, Prec, type Extension, type Text } from '@codemirror/state';
import type { ICellModel } from '@jupyterlab/cells';
import { NodeType, Parser, Tree, type Input, type PartialParse, type TreeFragment } from '@lezer/common';
import { styleTags, tags } from '@lezer/highlight';

const MAGIC = /^\s*%%compile(?=\s|$)/;
const styles = styleTags({ Magic: tags.meta, Option: tags.propertyName, Value: tags.string });
const [CELL, LINE, WORD, OPTION, VALUE] = ['CompileCell', 'MagicLine', 'Magic', 'Option', 'Value'].map((name, id) =>
  NodeType.define({ id: id + 1, name, top: name === 'CompileCell', props: [styles] }),
) as [NodeType, NodeType, NodeType, NodeType, NodeType];

/** The tree of the magic line: the magic's name, options, their values. */
function magicLine(text: string): Tree {
  const words = [...text.matchAll(/\S+/g)];
  const children = words.map((word, place) => {
    const type = place === 0 ? WORD : word[0].startsWith('-') ? OPTION : VALUE;
    return new Tree(type, [], [], word[0].length);
  });
  return new Tree(LINE, children, words.map((word) => word.index), text.length);
}

class CellParser extends Parser {
  createParse(input: Input, _: readonly TreeFragment[], ranges: readonly { from: number; to: number }[]): PartialParse {
    const text = input.read(0, input.length);
    const end = text.indexOf('\n') < 0 ? text.length : text.indexOf('\n');
    const body = Math.min(end + 1, text.length);
    const python = pythonLanguage.parser.startParse(input, [], [{ from: body, to: Math.max(body, ranges.at(-1)?.to ?? 0) }]);
    return {
      advance: () => {
        const tree = python.advance();
        return tree && new Tree(CELL, [magicLine(text.slice(0, end)), tree], [0, body], body + tree.length);
      },
      get parsedPos() {
        return python.parsedPos;
      },
      get stoppedAt() {
        return python.stoppedAt;
      },
      stopAt: (place) => python.stopAt(place),
    };
  }
}

/** `%%compile` and Python; exported for its tests. */
export const cellLanguage = new Language(pythonLanguage.data, new CellParser(), [], 'compile-cell');

const place = new Compartment();

/** Reads a cell in {@link cellLanguage} while its first line is `%%compile`, and as JupyterLab does else. */
export function magicExtension(model: ICellModel): Extension {
  if (model.type !== 'code') return [];
  const own = (magic: boolean): Extension => (magic ? Prec.highest(cellLanguage.extension) : []);
  return [
    place.of(own(MAGIC.test(model.sharedModel.getSource()))),
    EditorState.transactionExtender.of((transaction) => {
      if (!transaction.docChanged) return null;
      const [was, is] = [isMagic(transaction.startState.doc), isMagic(transaction.newDoc)];
      return was === is ? null : { effects: place.reconfigure(own(is)) };
    }),
  ];
}

function isMagic(doc: Text): boolean {
  return MAGIC.test(doc.line(1).text);
}
