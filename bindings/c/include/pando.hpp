// Pando for C++17: handles that free themselves, and errors as exceptions. It needs only pando.h.
//
// Each class owns one handle, is moved and not copied, and has the thread rules of its handle
// (pando.h). The calls that it does not have are called with get().
#ifndef PANDO_HPP
#define PANDO_HPP

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "pando.h"

namespace pando {

/// An error of a call: its message, its code, and its bytes (pando_error_bytes).
class error : public std::runtime_error {
public:
    explicit error(pando_error *from)
        : std::runtime_error(pando_error_message(from)), code_(pando_error_code(from)) {
        const pando_slice found = pando_error_bytes(from);
        bytes_.assign(reinterpret_cast<const char *>(found.data), found.len);
        pando_error_free(from);
    }
    pando_code code() const noexcept { return code_; }
    const std::string &bytes() const noexcept { return bytes_; }

private:
    pando_code code_;
    std::string bytes_;
};

/// Throws an error, if there is one.
inline void check(pando_error *found) {
    if (found != nullptr) throw error(found);
}

inline pando_slice slice(std::string_view bytes) noexcept {
    return {reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()};
}

inline std::string_view view(pando_slice bytes) noexcept {
    return {reinterpret_cast<const char *>(bytes.data), bytes.len};
}

/// A handle that frees itself. An error of the release is not reported: free the handle by its own
/// call, with release(), to see it.
template <typename Handle, pando_error *(*Free)(Handle *)> class handle {
public:
    handle() noexcept = default;
    explicit handle(Handle *owned) noexcept : owned_(owned) {}
    Handle *get() const noexcept { return owned_.get(); }
    Handle *release() noexcept { return owned_.release(); }

private:
    struct freeing {
        void operator()(Handle *owned) const noexcept { pando_error_free(Free(owned)); }
    };
    std::unique_ptr<Handle, freeing> owned_;
};

/// Bytes that a call fills; their memory is used again.
class bytes {
public:
    bytes() noexcept = default;
    bytes(const bytes &) = delete;
    bytes &operator=(const bytes &) = delete;
    bytes(bytes &&other) noexcept { std::swap(owned_, other.owned_); }
    bytes &operator=(bytes &&other) noexcept {
        std::swap(owned_, other.owned_);
        return *this;
    }
    ~bytes() { pando_bytes_free(&owned_); }
    pando_bytes *place() noexcept { return &owned_; }
    std::string_view view() const noexcept {
        return {reinterpret_cast<const char *>(owned_.data), owned_.len};
    }

private:
    pando_bytes owned_ = PANDO_BYTES_INIT;
};

/// A record that is lent until the next call of the scan.
struct record {
    std::string_view key;
    std::string_view value;
};

class scan : public handle<pando_scan, pando_scan_free> {
public:
    using handle::handle;
    std::optional<record> next() {
        pando_slice key, value;
        bool found;
        check(pando_scan_next(get(), &key, &value, &found));
        if (!found) return std::nullopt;
        return record{pando::view(key), pando::view(value)};
    }
};

class map : public handle<pando_map, pando_map_free> {
public:
    using handle::handle;
    void insert(std::string_view key, std::string_view value) {
        check(pando_map_insert(get(), slice(key), slice(value)));
    }
    void put(std::string_view key, std::string_view value) {
        check(pando_map_put(get(), slice(key), slice(value)));
    }
    std::optional<std::string> at(std::string_view key) const {
        bytes value;
        bool found;
        check(pando_map_get(get(), slice(key), value.place(), &found));
        if (!found) return std::nullopt;
        return std::string(value.view());
    }
    bool remove(std::string_view key) {
        bool found;
        check(pando_map_remove(get(), slice(key), &found));
        return found;
    }
    pando::scan scan(const pando_range *range = nullptr) const {
        pando_scan *begun;
        check(pando_map_scan(get(), range, &begun));
        return pando::scan(begun);
    }
};

/// Keeps the values that it has lent until it ends. Let it end soon: the pool grows meanwhile.
class guard : public handle<pando_guard, pando_guard_free> {
public:
    using handle::handle;
    std::optional<std::string_view> read(const map &map, std::string_view key) {
        pando_slice value;
        bool found;
        check(pando_guard_read(get(), map.get(), slice(key), &value, &found));
        if (!found) return std::nullopt;
        return view(value);
    }
};

class transaction : public handle<pando_transaction, pando_transaction_free> {
public:
    using handle::handle;
    std::optional<std::string> at(const map &map, std::string_view key) {
        bytes value;
        bool found;
        check(pando_transaction_get(get(), map.get(), slice(key), value.place(), &found));
        if (!found) return std::nullopt;
        return std::string(value.view());
    }
    void put(const map &map, std::string_view key, std::string_view value) {
        check(pando_transaction_put(get(), map.get(), slice(key), slice(value)));
    }
    void remove(const map &map, std::string_view key) {
        check(pando_transaction_remove(get(), map.get(), slice(key)));
    }
};

class pool : public handle<pando_pool, pando_pool_free> {
public:
    using handle::handle;
    static pool open_or_create(const std::string &path,
                               const pando_pool_options *options = nullptr) {
        pando_pool *opened;
        check(pando_pool_open_or_create(path.c_str(), options, &opened));
        return pool(opened);
    }
    pando::map map(const std::string &name, const pando_map_options *options = nullptr) const {
        pando_map *opened;
        check(pando_pool_map(get(), name.c_str(), options, &opened));
        return pando::map(opened);
    }
    pando::guard guard() const {
        pando_guard *begun;
        check(pando_pool_guard(get(), &begun));
        return pando::guard(begun);
    }
    /// Runs body with a transaction and commits it; again, if it conflicts with another one. An
    /// exception of body ends the transaction without its writes. Returns its number in the log.
    template <typename Body> uint64_t run(Body &&body) const {
        for (;;) {
            pando_transaction *begun;
            check(pando_pool_begin(get(), PANDO_ISOLATION_SERIALIZABLE, &begun));
            transaction current(begun);
            body(current);
            uint64_t lsn;
            pando_error *found = pando_transaction_commit(current.get(), &lsn);
            if (found == nullptr) return lsn;
            if (pando_error_code(found) != PANDO_CODE_CONFLICT) throw error(found);
            pando_error_free(found);
        }
    }
};

} // namespace pando

#endif // PANDO_HPP
