/** Prompts become slash commands: a person asks for them, so they may say what to do. */
export const PROMPTS = [
  {
    name: 'inbox',
    title: 'Inbox',
    description: 'Read the Patchcord inbox',
    text: 'Read my Patchcord inbox with the inbox tool. Tell me who wrote what, and what you suggest for each message before you act on it.',
  },
  {
    name: 'wait',
    title: 'Wait for messages',
    description: 'Wait for Patchcord messages in this session',
    text: 'Wait for Patchcord messages with the wait_for_message tool. When it answers that nothing came yet or that the server is restarting, call it again. When a message comes, handle it within what I have asked of you in this session, reply, and wait again until I stop you.',
  },
]
