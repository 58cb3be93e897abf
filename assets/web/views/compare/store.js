// Records kept in the visitor's browser (IndexedDB), by their `id`. Where the browser forbids that they
// are kept in memory until the page is closed, and `why` says so. Knows nothing of what is in a record.

const NAME = "mars-live";
const RECORDS = "pins";

const FORBIDDEN = "This browser does not let the page keep anything; pinned runs stay until the page is closed.";
const FULL =
  "This browser has no room left; the run stays until the page is closed. Export it, or delete others and pin it again.";

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
const settled = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/**
 * Other windows of this browser; none where it lets the page have no channel, as in a frame without storage.
 * @param {string} name
 */
function channelTo(name) {
  try {
    return new BroadcastChannel(name);
  } catch {
    return { postMessage() {}, onmessage: null };
  }
}

export class Store {
  /** @type {Map<string, PinRecord>} */
  memory = new Map(); // what the browser did not take
  /** @type {Promise<IDBDatabase | null> | undefined} */
  opened;

  /** @param {() => IDBFactory} [database] */
  constructor(database = () => window.indexedDB) {
    this.database = database;
    this.why = "";
    this.channel = channelTo(NAME);
  }

  /**
   * listener(): called when another window of this browser has changed what is kept.
   * @param {() => void} listener
   */
  watch(listener) {
    this.channel.onmessage = listener;
  }

  open() {
    this.opened ||= this.connect().catch(() => {
      this.why = FORBIDDEN;
      return null;
    });
    return this.opened;
  }

  async connect() {
    const request = this.database().open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(RECORDS, { keyPath: "id" });
    const opened = await settled(request);
    opened.onversionchange = () => opened.close(); // another page of a later version wants to go on
    return opened;
  }

  async all() {
    const database = await this.open();
    const kept = database ? await settled(database.transaction(RECORDS).objectStore(RECORDS).getAll()) : [];
    return [...kept.filter((record) => !this.memory.has(record.id)), ...this.memory.values()];
  }

  /**
   * "" when the record is kept, otherwise the sentence that says why it is only in memory.
   * @param {PinRecord} record
   */
  async put(record) {
    const database = await this.open();
    try {
      if (!database) throw new Error(FORBIDDEN);
      await this.write(database, (records) => records.put(record));
      this.memory.delete(record.id);
      return "";
    } catch {
      this.memory.set(record.id, record);
      return database ? FULL : this.why;
    }
  }

  /** @param {string} id */
  async remove(id) {
    this.memory.delete(id);
    const database = await this.open();
    if (database) await this.write(database, (records) => records.delete(id));
  }

  /**
   * Done when it is on the disk: a full disk says so only as the transaction ends.
   * @param {IDBDatabase} database
   * @param {(records: IDBObjectStore) => void} change
   */
  write(database, change) {
    return /** @type {Promise<void>} */ (
      new Promise((resolve, reject) => {
        const transaction = database.transaction(RECORDS, "readwrite");
        transaction.oncomplete = () => {
          this.channel.postMessage("changed");
          resolve();
        };
        transaction.onabort = () => reject(transaction.error);
        change(transaction.objectStore(RECORDS));
      })
    );
  }
}
