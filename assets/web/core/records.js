// Stores records in the visitor's browser (IndexedDB) under their `id`. If the browser forbids storage, records stay in
// memory until the page is closed, and `why` holds a sentence that explains this.

/** Names and messages of the default store, which holds sets to review. */
const SETS = {
  name: "mars-review",
  records: "sets",
  forbidden: "This browser blocks storage, so your sets and pinned runs are lost when you close the page. Export them.",
  full: "This browser's storage is full, so this set is lost when you close the page. Export it.",
};

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const settled = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/**
 * Returns a channel to other windows of this browser, or a channel that does nothing if the browser forbids channels,
 * as in a frame without storage.
 * @param {string} name
 */
function channelTo(name) {
  try {
    return new BroadcastChannel(name);
  } catch {
    return { postMessage() {}, onmessage: null };
  }
}

/** @template {{ id: string }} R */
export class Store {
  /** @type {Map<string, R>} */
  memory = new Map(); // records that the browser did not store
  /** @type {Promise<IDBDatabase | null> | undefined} */
  opened;

  /**
   * @param {() => IDBFactory} [database]
   * @param {typeof SETS} [kind] names of the database, and messages for when nothing can be stored
   */
  constructor(database = () => window.indexedDB, kind = SETS) {
    this.database = database;
    this.kind = kind;
    this.why = "";
    this.channel = channelTo(kind.name);
  }

  /** Calls `listener` when another window of this browser has changed the records. @param {() => void} listener */
  watch(listener) {
    this.channel.onmessage = listener;
  }

  open() {
    this.opened ||= this.connect().catch(() => {
      this.why = this.kind.forbidden;
      return null;
    });
    return this.opened;
  }

  async connect() {
    const request = this.database().open(this.kind.name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(this.kind.records, { keyPath: "id" });
    const opened = await settled(request);
    opened.onversionchange = () => opened.close(); // a later version of the page needs to upgrade
    return opened;
  }

  /** @returns {Promise<R[]>} */
  async all() {
    const stored = await this.read().catch(() => {
      this.why = this.kind.forbidden; // the database was closed for a later version of the page, or is damaged
      return [];
    });
    return [...stored.filter((record) => !this.memory.has(record.id)), ...this.memory.values()];
  }

  /** @returns {Promise<R[]>} */
  async read() {
    const database = await this.open();
    if (!database) return [];
    return settled(database.transaction(this.kind.records).objectStore(this.kind.records).getAll());
  }

  /** Stores a record. Returns "", or a sentence that explains why the record is only in memory. @param {R} record */
  async put(record) {
    const database = await this.open();
    try {
      if (!database) throw new Error(this.kind.forbidden);
      await this.write(database, (records) => records.put(record));
      this.memory.delete(record.id);
      return "";
    } catch {
      this.memory.set(record.id, record);
      return database ? this.kind.full : this.why;
    }
  }

  /** @param {string} id */
  async remove(id) {
    this.memory.delete(id);
    const database = await this.open();
    if (database) await this.write(database, (records) => records.delete(id)).catch(() => {}); // the record then stays stored
  }

  /**
   * Makes a change and resolves when its transaction has ended, because only then does the browser report a full disk.
   * @param {IDBDatabase} database @param {(records: IDBObjectStore) => void} change
   */
  write(database, change) {
    return /** @type {Promise<void>} */ (
      new Promise((resolve, reject) => {
        const transaction = database.transaction(this.kind.records, "readwrite");
        transaction.oncomplete = () => {
          this.channel.postMessage("changed");
          resolve();
        };
        transaction.onabort = () => reject(transaction.error);
        change(transaction.objectStore(this.kind.records));
      })
    );
  }
}
