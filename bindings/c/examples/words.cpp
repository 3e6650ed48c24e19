// A pool with a map of words, from C++:
//
//     c++ -std=c++17 words.cpp $(pkg-config --cflags --libs pando) -o words && ./words FOLDER
#include <cassert>
#include <iostream>

#include "pando.hpp"

int main(int count, char **arguments) try {
    if (count != 2) {
        std::cerr << "usage: words FOLDER\n";
        return 2;
    }
    auto pool = pando::pool::open_or_create(std::string(arguments[1]) + "/words.cpp.pando");
    auto words = pool.map("words");
    words.put("aspen", "one organism, many trees");
    words.put("oak", "Quercus");
    assert(words.at("aspen") == "one organism, many trees");
    {
        auto guard = pool.guard();
        const auto lent = guard.read(words, "aspen");
        words.put("aspen", "Populus tremuloides");
        assert(lent == "one organism, many trees" && !guard.read(words, "elm"));
    }
    assert(!words.at("elm") && words.remove("oak"));
    try {
        words.insert("aspen", "again");
        return 1;
    } catch (const pando::error &error) {
        assert(error.code() == PANDO_CODE_KEY_EXISTS);
    }
    auto scan = words.scan();
    while (auto record = scan.next()) std::cout << record->key << ": " << record->value << "\n";

    pando_map_options transactional{};
    transactional.struct_size = sizeof transactional;
    transactional.transactional = PANDO_TRANSACTIONAL_YES;
    auto counters = pool.map("counters", &transactional);
    pool.run([&](pando::transaction &transaction) {
        const auto visits = std::stoi(transaction.at(counters, "visits").value_or("0"));
        transaction.put(counters, "visits", std::to_string(visits + 1));
        transaction.remove(counters, "former");
    });
    assert(counters.at("visits") == "1");
    auto moved = std::move(counters);
    assert(counters.get() == nullptr && moved.at("visits"));
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
