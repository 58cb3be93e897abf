// Records in the visitor's browser (IndexedDB), by their `id`. If the browser forbids that, they are stored in memory
// until the page is closed, and `why` explains it.

/** The default kind of record: pinned runs. Each kind has a database of its own. */
const PINS = {
  name: "mars-live",
  records: "pins",
  forbidden: "This browser blocks storage, so pinned runs are lost when you close the page. Export the runs you need.",
  full: "This browser's storage is full, so this run is lost when you close the page. Export it, or delete other runs and pin it again.",
};

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
 * Channel to other windows of this browser; null if there can be none, as in a frame without storage.
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
  memory = new Map(); // what the browser did not store
  /** @type {Promise<IDBDatabase | null> | undefined} */
  opened;

  /**
   * @param {() => IDBFactory} [database]
   * @param {typeof PINS} [kind] names, and sentences for when nothing can be stored
   */
  constructor(database = () => window.indexedDB, kind = PINS) {
    this.database = database;
    this.kind = kind;
    this.why = "";
    this.channel = channelTo(kind.name);
  }

  /**
   * listener(): called when another window of this browser has changed the records.
   * @param {() => void} listener
   */
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
    const kept = await this.read().catch(() => {
      this.why = this.kind.forbidden; // closed for a later version of the page, or damaged
      return [];
    });
    return [...kept.filter((record) => !this.memory.has(record.id)), ...this.memory.values()];
  }

  /** @returns {Promise<R[]>} */
  async read() {
    const database = await this.open();
    if (!database) return [];
    return settled(database.transaction(this.kind.records).objectStore(this.kind.records).getAll());
  }

  /**
   * Returns "" when the record is stored, otherwise a sentence why it is only in memory.
   * @param {R} record
   */
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
    if (database) await this.write(database, (records) => records.delete(id)).catch(() => {}); // still stored
  }

  /**
   * Resolves when it is on the disk: a full disk is only reported as the transaction ends.
   * @param {IDBDatabase} database
   * @param {(records: IDBObjectStore) => void} change
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
