import { render } from 'preact'
import { App } from './app'
import { startSource } from './state/app'
import { listenToKeys } from './state/keys'
import { listenToAddress } from './state/route'
import { startTheme } from './state/theme'
import './styles/index.css'

startTheme()
listenToAddress()
listenToKeys()
await startSource()
render(<App />, document.getElementById('app')!)
