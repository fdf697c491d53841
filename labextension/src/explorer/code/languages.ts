/** How the texts of a kernel are read and saved, by language. */
import { cppLanguage } from '@codemirror/lang-cpp';
import { pythonLanguage } from '@codemirror/lang-python';
import { StreamLanguage, type StreamParser } from '@codemirror/language';
import type { Extension } from '@codemirror/state';

const FILES: ReadonlyMap<string, string> = new Map(Object.entries({ c: '.c', cpp: '.cpp', triton: '.py', llir: '.ll', assembly: '.s' }));

/** The end of a file's name: `.c`, `.ptx`. */
export function ending(language: string): string {
  return FILES.get(language) ?? `.${language.replace(/\W/g, '') || 'txt'}`;
}

/**
 * A comment's start. SASS ends its instructions with a semicolon, LLVM and AMDGCN start comments with one; of a
 * processor's assembly a number sign does so on x86, and starts a number on ARM.
 */
const COMMENTS: ReadonlyMap<string, RegExp> = new Map(Object.entries({ llir: /^;/, amdgcn: /^(;|\/\/)/, assembly: /^(#+ |;|\/\/)/ }));

/** One word after the other: instructions, registers, types. Enough for every text a compiler makes. */
function machine(comment: RegExp): StreamParser<null> {
  return {
    name: 'machine',
    token(stream) {
      if (stream.eatSpace()) return null;
      if (stream.match(comment)) {
        stream.skipToEnd();
        return 'comment';
      }
      if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return 'string';
      if (stream.match(/^[%$][\w.$]+(?:#\d+)?|^\b(?:U?R|U?P)(?:\d+|Z|T)\b/)) return 'variableName';
      if (stream.match(/^@!?[\w.$]+/)) return 'meta';
      if (stream.match(/^\.[a-zA-Z_][\w.]*/) || stream.match(/^#[\w.]+/)) return 'meta';
      if (stream.match(/^-?(?:0[xXdDfF][\da-fA-F]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?)\b/)) return 'number';
      if (stream.match(/^(?:[iuf]|bf|x)\d+\b|^!?tt\.ptr\b|^(?:tensor|vector|memref|ptr|half|float|double|index)\b/)) return 'typeName';
      if (stream.match(/^[a-zA-Z_][\w]*(?:\.[\w:]+)+|^[a-zA-Z_]\w*/)) return 'keyword';
      stream.next();
      return null;
    },
  };
}

/** What colours a text. */
export function languageOf(name: string): Extension {
  if (name === 'c' || name === 'cpp') return cppLanguage;
  if (name === 'triton') return pythonLanguage;
  return StreamLanguage.define(machine(COMMENTS.get(name) ?? /^\/\//));
}
