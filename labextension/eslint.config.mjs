import js from '@eslint/js';
import ts from 'typescript-eslint';

// What keeps a record from running anything: no HTML from strings, no code from strings.
const unsafe = ['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'dangerouslySetInnerHTML', 'srcdoc'];

export default ts.config(
  { ignores: ['lib', 'dist', 'node_modules', 'src/record/generated', 'coverage'] },
  js.configs.recommended,
  ...ts.configs.strict,
  {
    rules: {
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      'max-lines': ['error', 500],
      complexity: ['error', 15],
      'no-eval': 'error',
      'no-implied-eval': 'error',
      'no-new-func': 'error',
      'no-restricted-properties': [
        'error',
        ...unsafe.map((property) => ({ property, message: 'A record is untrusted: make text nodes.' })),
      ],
      'no-restricted-syntax': [
        'error',
        {
          selector: `JSXAttribute[name.name=/^(${unsafe.join('|')})$/]`,
          message: 'A record is untrusted: make text nodes.',
        },
      ],
      eqeqeq: 'error',
    },
  },
  { files: ['scripts/**', '*.mjs'], languageOptions: { globals: { process: 'readonly', console: 'readonly', URL: 'readonly' } } },
  { files: ['*.cjs'], languageOptions: { globals: { module: 'readonly' } } },
);
