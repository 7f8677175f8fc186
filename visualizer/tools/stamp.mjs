// Writes what the built files were made from: a hash over the paths and bytes of the sources.
// tests/viewer/test_stamp.py computes the same without Node.
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const HERE = fileURLToPath(new URL('..', import.meta.url))
const SINGLE = ['.npmrc', 'index.html', 'package-lock.json', 'package.json', 'tsconfig.json', 'vite.config.ts']

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(HERE, join(entry.parentPath, entry.name)).split(sep).join('/'))
}

export function stamp() {
  const paths = [...SINGLE, ...filesBelow(join(HERE, 'src'))].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  const hash = createHash('sha256')
  for (const path of paths) {
    const bytes = readFileSync(join(HERE, path))
    hash.update(`${path}\0${bytes.length}\0`)
    hash.update(bytes)
  }
  return hash.digest('hex')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(join(HERE, '..', 'src', 'rlm', 'viewer', 'static', 'source.sha256'), `${stamp()}\n`)
}
