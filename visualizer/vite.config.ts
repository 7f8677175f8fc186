import { spawn, type ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'vite'
import { defineConfig, type ViteUserConfig } from 'vitest/config'

const PORT = 3001
const START_MS = 60_000
const LINK = /Viewer: (http:\/\/[^\s/]+)\/\?token=([\w.~-]+)/

interface Viewer {
  readonly target: string
  readonly token: string
}

/** An `rlm view` of the kept runs on a free port; null where there is no rlm to start. */
function startViewer(): Promise<Viewer | null> {
  const own = fileURLToPath(new URL('../.venv/bin/rlm', import.meta.url))
  const child: ChildProcess = spawn(existsSync(own) ? own : 'rlm', ['view', '--port', '0'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  process.on('exit', () => child.kill())
  return new Promise((resolve) => {
    let said = ''
    const timer = setTimeout(() => child.kill(), START_MS)
    child.stderr?.setEncoding('utf-8').on('data', (more: string) => {
      said = (said + more).slice(-10_000)
      const found = LINK.exec(said)
      if (!found) return
      clearTimeout(timer)
      resolve({ target: found[1]!, token: found[2]! })
    })
    child.on('error', () => resolve(null))
    child.on('exit', () => resolve(null))
  })
}

/** RLM_SERVER is the address that an `rlm view` printed, or none; without it, one is started here. */
async function viewerOf(server: string | undefined): Promise<Viewer | null> {
  if (server === 'none') return null
  if (!server) return startViewer()
  const address = new URL(server)
  return { target: address.origin, token: address.searchParams.get('token') ?? '' }
}

/** Prints the address that has the token: other users of this machine can reach this server, too. */
function printsLink(viewer: Viewer): Plugin {
  return {
    name: 'rlm-link',
    configureServer(server) {
      const print = server.printUrls.bind(server)
      server.printUrls = () => {
        print()
        const base = server.resolvedUrls?.local[0] ?? `http://localhost:${PORT}/`
        server.config.logger.info(`  ➜  With your runs: ${base}${viewer.token ? `?token=${viewer.token}` : ''}`)
      }
    },
  }
}

export default defineConfig(async ({ command, mode }): Promise<ViteUserConfig> => {
  const viewer = command === 'serve' && mode !== 'test' ? await viewerOf(process.env['RLM_SERVER']) : null
  return {
    plugins: viewer ? [printsLink(viewer)] : [],
    define: { __HAS_SERVER__: JSON.stringify(viewer !== null) },
    build: {
      outDir: '../src/rlm/viewer/static',
      emptyOutDir: true,
      target: 'es2022',
      cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
      modulePreload: false,
      assetsInlineLimit: 0,
      reportCompressedSize: false,
      rolldownOptions: {
        output: {
          // Hashes in hexadecimal: names that differ by more than case, on every file system.
          hashCharacters: 'hex',
          entryFileNames: 'assets/[name]-[hash].js',
          chunkFileNames: 'assets/[name]-[hash].js',
          assetFileNames: 'assets/[name]-[hash][extname]',
        },
      },
    },
    worker: { format: 'es', rolldownOptions: { output: { hashCharacters: 'hex', entryFileNames: 'assets/[name]-[hash].js' } } },
    server: {
      port: PORT,
      strictPort: true,
      // The browser's own cookie or header goes along; nothing is added to a request.
      proxy: viewer ? { '/api': { target: viewer.target, changeOrigin: true } } : undefined,
    },
    preview: { port: PORT, strictPort: true },
    // Machines are shared: a test that is slow has not failed.
    test: { include: ['test/**/*.test.ts'], environment: 'node', testTimeout: 120_000 },
  }
})
