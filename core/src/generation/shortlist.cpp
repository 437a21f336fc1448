#include <algorithm>
#include <heddle/core/generation/shortlist.hpp>

namespace heddle {

std::vector<std::int32_t> Shortlist::tokens(std::span<std::int32_t const> source, std::int32_t end) const {
  std::vector<std::int32_t> all = always;
  for (std::int32_t const token : source) {
    if (auto const index = static_cast<std::size_t>(token); index < translations.size()) {
      all.insert(all.end(), translations[index].begin(), translations[index].end());
    }
  }
  std::erase(all, end);
  std::ranges::sort(all);
  auto const surplus = std::ranges::unique(all);
  all.erase(surplus.begin(), surplus.end());
  all.insert(all.begin(), end);
  return all;
}

}  // namespace heddle
