import { spawn, type ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import type { ClientRequest, IncomingMessage } from 'node:http'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'vite'
import { defineConfig, type ViteUserConfig } from 'vitest/config'

const PORT = 3001
const START_MS = 60_000
const LINK = /Viewer: (http:\/\/[^\s/]+)\/\?token=([\w.~-]+)/
const META = /<meta name="rlm-token" content="([\w.~-]+)">/

interface Viewer {
  readonly target: string
  readonly token: string
}

/** Starts an `rlm view` of the recorded runs on a free port; null if rlm is not installed. */
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
    const failed = (reason: string): void => {
      if (!LINK.test(said)) console.error(`rlm view did not start, so files can't be opened: ${reason}`)
      resolve(null)
    }
    child.on('error', () => failed('rlm is not installed; run `make setup` in the folder above'))
    child.on('exit', () => failed(said.trim()))
  })
}

/** RLM_SERVER is the address that an `rlm view` printed, or `none`. Without it, one is started here. */
async function viewerOf(server: string | undefined): Promise<Viewer | null> {
  if (server === 'none') return null
  if (!server) return startViewer()
  const { origin, searchParams } = new URL(server)
  return { target: origin, token: searchParams.get('token') ?? META.exec(await (await fetch(origin)).text())?.[1] ?? '' }
}

/** What everyone who can reach this server may do: open files. Contexts are left out, because the viewer stores them. */
const OPENED = /^\/api\/opened(?:\/[\w-]+(?:\/.*)?)?$/
const STORED = /\/(?:context|coverage)$/

/**
 * Make requests of this page look like those of the viewer's own page. Runs still need the token, which the
 * browser has only if it was opened with the printed address; other users of this machine can reach this server, too.
 */
function passOn(request: ClientRequest, received: IncomingMessage, { target, token }: Viewer): void {
  const { origin, host } = received.headers
  if (origin === `http://${host}`) {
    request.setHeader('Origin', target)
    request.setHeader('X-RLM-Token', token)
  }
  // Not the path as it was received: it may contain dots that lead elsewhere, which are resolved by now.
  const path = request.path.split('?', 1)[0]!
  if (OPENED.test(path) && !STORED.test(path)) request.setHeader('Authorization', `Bearer ${token}`)
}

/** Prints the address with the token. */
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
    // The page may be mounted below any path.
    base: './',
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
    server: {
      port: PORT,
      strictPort: true,
      proxy: viewer
        ? {
            '/api': {
              target: viewer.target,
              changeOrigin: true,
              configure: (proxy) => proxy.on('proxyReq', (request, received) => passOn(request, received, viewer)),
            },
          }
        : undefined,
    },
    preview: { port: PORT, strictPort: true },
    // A slow machine is no failure.
    test: { include: ['test/**/*.test.ts'], environment: 'node', testTimeout: 120_000 },
  }
})
