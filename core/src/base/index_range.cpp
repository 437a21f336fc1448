#include <heddle/core/base/index_range.hpp>

namespace heddle {

IndexRange share(std::int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

int owner_of(std::int64_t index, std::int64_t count, int ranks) {
  return static_cast<int>(((index + 1) * ranks - 1) / count);
}

}  // namespace heddle
