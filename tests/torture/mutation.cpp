#include "mutation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>

namespace heddle {

namespace {

std::size_t below(std::mt19937_64& random, std::size_t end) {
  return end == 0 ? 0 : random() % end;
}

void put_number(std::string& bytes, std::size_t place, std::mt19937_64& random) {
  constexpr std::int64_t numbers[] = {0,
                                      1,
                                      -1,
                                      std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min(),
                                      std::int64_t{1} << 31,
                                      (std::int64_t{1} << 32) - 1,
                                      std::int64_t{1} << 40};
  std::int64_t const number = numbers[below(random, std::size(numbers))];
  std::size_t const wide = std::size_t{1} << below(random, 4);
  std::memcpy(bytes.data() + place, &number, std::min(wide, bytes.size() - place));
}

}  // namespace

std::string mutated(std::string bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t changes = 1 + below(random, 4); changes > 0 && !bytes.empty(); --changes) {
    std::size_t const place = below(random, bytes.size());
    std::size_t const count = 1 + below(random, below(random, 2) == 0 ? 4 : bytes.size() - place);
    switch (below(random, 7)) {
      case 0:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << below(random, 8)));
        break;
      case 1:
        bytes[place] = static_cast<char>(random());
        break;
      case 2:
        put_number(bytes, place, random);
        break;
      case 3:
        bytes.erase(place, count);
        break;
      case 4:
        bytes.insert(below(random, bytes.size()), bytes.substr(place, count));
        break;
      case 5:
        bytes.replace(place, count, bytes.substr(below(random, bytes.size()), count));
        break;
      default:
        if (below(random, 4) == 0) {
          bytes.resize(place);
        }
        bytes += static_cast<char>(random());
    }
  }
  return bytes;
}

}  // namespace heddle
