#include <algorithm>
#include <heddle/core/generation/shortlist.hpp>

namespace heddle {

std::vector<std::int32_t> Shortlist::tokens(std::span<std::int32_t const> source,
                                            std::span<std::int32_t const> ends) const {
  std::vector<std::int32_t> all = always;
  for (std::int32_t const token : source) {
    if (auto const index = static_cast<std::size_t>(token); index < translations.size()) {
      all.insert(all.end(), translations[index].begin(), translations[index].end());
    }
  }
  std::erase_if(all, [&](std::int32_t token) { return std::ranges::find(ends, token) != ends.end(); });
  std::ranges::sort(all);
  auto const surplus = std::ranges::unique(all);
  all.erase(surplus.begin(), surplus.end());
  all.insert(all.begin(), ends.begin(), ends.end());
  return all;
}

}  // namespace heddle
