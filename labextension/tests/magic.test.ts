import { describe, expect, it } from 'vitest';
import { cellLanguage } from '../src/lab/magic';
import { compared, magicLine, withCompare, withLine, withMagic } from '../src/lab/source';

/** Names of the nodes that cover each word of the text, outermost left out. */
function names(source: string): [string, string][] {
  const out: [string, string][] = [];
  cellLanguage.parser.parse(source).iterate({
    enter: (node) => {
      if (!node.node.firstChild && node.to > node.from) out.push([source.slice(node.from, node.to), node.name]);
    },
  });
  return out;
}

describe('the language of a cell', () => {
  it('has words of its own on the magic line', () => {
    expect(names('%%compile --mode max-autotune\nx')).toEqual([
      ['%%compile', 'Magic'], ['--mode', 'Option'], ['max-autotune', 'Value'], ['x', 'VariableName'],
    ]);
  });

  it('keeps what is open on the magic line from the Python below', () => {
    const body = 'def f(a):\n    return "one" + a\n';
    const below = names(`%%compile\n${body}`).slice(1);
    expect(below.slice(0, 2)).toEqual([['def', 'def'], ['f', 'VariableName']]);
    for (const line of ["--save 'it", '--into (', '--save """', '--no-fuse a:']) {
      expect(names(`%%compile ${line}\n${body}`).slice(3)).toEqual(below);
    }
  });

  it('places nodes where their text is', () => {
    const tree = cellLanguage.parser.parse('%%compile -o a=1\nwhile x:\n    y');
    const at = tree.resolveInner(17, 1);
    expect([at.name, at.from, at.to]).toEqual(['while', 17, 22]);
    expect(tree.length).toBe(31);
  });

  it('reads a cell that is a magic line alone', () => {
    expect(names('%%compile')).toEqual([['%%compile', 'Magic']]);
    expect(names('%%compile\n')).toEqual([['%%compile', 'Magic']]);
  });
});

describe('the magic line of a source', () => {
  it('is added once, below other cell magics', () => {
    expect(withMagic('x + 1')).toBe('%%compile\nx + 1');
    expect(withMagic('%%time\nx')).toBe('%%time\n%%compile\nx');
    for (const has of ['%%compile --train\nx', '\n%%compile\nx', '%%time\n%%compile\nx']) expect(withMagic(has)).toBe(has);
  });

  it('is not a text further down', () => {
    const source = 'a = """\n%%compile\n"""';
    expect(magicLine(source)).toBeNull();
    expect(withMagic(source)).toBe(`%%compile\n${source}`);
    expect(magicLine('%%compiled\nx')).toBeNull();
  });

  it('gets contestants, and loses what forbids to time them', () => {
    expect(withCompare('x', ['eager', 'inductor:max-autotune'])).toBe('%%compile --compare eager,inductor:max-autotune\nx');
    expect(withCompare('%%compile --no-bench --compare a,b --train\nx', ['eager'])).toBe('%%compile --train --compare eager\nx');
    expect(withCompare('%%compile --compare=a\n$&', ['eager'])).toBe('%%compile --compare eager\n$&');
    expect(compared('%%compile --train --compare eager,nbcompile:default')).toEqual(['eager', 'nbcompile:default']);
    expect(compared('%%compile')).toEqual([]);
  });
});

describe('the line that the doctor writes', () => {
  it('takes the place of the magic line, and nothing else does', () => {
    expect(withLine('%%compile --doctor\ny = x', '%%compile --backend a')).toBe('%%compile --backend a\ny = x');
    expect(withLine('%%time\n%%compile\ny', '%%compile $&')).toBe('%%time\n%%compile $&\ny');
    expect(withLine('y = x', '%%compile')).toBe('y = x');
    expect(withLine('%%compile\ny', '%%compile\nimport os')).toBe('%%compile\ny');
    expect(withLine('%%compile\ny', 'import os')).toBe('%%compile\ny');
  });
});
