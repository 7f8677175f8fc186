import { defineConfig } from 'vitest/config'

const PORT = 3001

/** With RLM_SERVER=http://localhost:3002, `npm run dev` shows what that `rlm view` serves. */
const server = process.env['RLM_SERVER'] ?? ''

export default defineConfig({
  define: { __HAS_SERVER__: JSON.stringify(server !== '') },
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
    proxy: server ? { '/api': { target: server, changeOrigin: true } } : {},
  },
  preview: { port: PORT, strictPort: true },
  // Machines are shared: a test that is slow has not failed.
  test: { include: ['test/**/*.test.ts'], environment: 'node', testTimeout: 120_000 },
})
