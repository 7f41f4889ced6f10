import assert from 'node:assert/strict'
import { test } from 'node:test'
import { splitStatements } from '../../server/db/statements.ts'

const cases: [string, string, string[]][] = [
  ['strings', "select ';'; select 'it''s;'; select e'a\\';b'", ["select ';'", "select 'it''s;'", "select e'a\\';b'"]],
  ['quoted names', 'select 1 as "a;""b"; select 2', ['select 1 as "a;""b"', 'select 2']],
  ['dollar quotes', 'do $$ begin; end $$; do $x$ a; $$ b; $$ $x$;', ['do $$ begin; end $$', 'do $x$ a; $$ b; $$ $x$']],
  ['line comments', '-- a; b\nselect 1; -- c;\nselect 2', ['-- a; b\nselect 1', '-- c;\nselect 2']],
  ['nested comments', '/* a; /* b; */ c; */ select 1; select 2', ['/* a; /* b; */ c; */ select 1', 'select 2']],
  ['an apostrophe in a comment', "-- it's\nselect 1; select 'x'", ["-- it's\nselect 1", "select 'x'"]],
  ['a parameter is no dollar quote', 'select $1; select $1', ['select $1', 'select $1']],
  ['a name with dollars', 'select a$b$c; select 1', ['select a$b$c', 'select 1']],
  [
    'atomic bodies',
    'create function f() returns int begin atomic select case when true then 1 end; select 2; end; select 3',
    ['create function f() returns int begin atomic select case when true then 1 end; select 2; end', 'select 3'],
  ],
  ['empty statements', ';; select 1;;\n', ['select 1']],
]
for (const [name, script, expected] of cases) {
  test(`semicolons end statements, except in ${name}`, () => assert.deepEqual(splitStatements(script), expected))
}
