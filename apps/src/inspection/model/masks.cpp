#include <algorithm>
#include <map>
#include <string>

#include "inspection/page/page.hpp"
#include "observed_model.hpp"

namespace heddle {
namespace {

constexpr std::int64_t max_cells = 48;  ///< on an axis

/// The number of positions that show what the mask does, in whole cells.
std::int64_t drawn_positions(AttentionMask const& mask) {
  constexpr std::int64_t usual = 24;
  constexpr std::int64_t max = 2048;
  std::int64_t const reach = std::max<std::int64_t>({mask.left, mask.right, 1}) * mask.block;
  std::int64_t const wanted = mask.is_local() ? std::clamp(4 * reach, usual, max) : usual;
  std::int64_t const each = (wanted + max_cells - 1) / max_cells;
  return (wanted + each - 1) / each * each;
}

boost::json::object to_json(AttentionMask const& mask) {
  std::int64_t const positions = drawn_positions(mask);
  std::int64_t const prefix = mask.is(MaskKind::prefix) ? positions / 3 : 0;
  std::int64_t const each = (positions + max_cells - 1) / max_cells;
  std::int64_t const cells = positions / each;
  std::vector<double> share(static_cast<std::size_t>(cells * cells));
  for (std::int64_t query = 0; query < positions; ++query) {
    for (std::int64_t key = 0; key < positions; ++key) {
      if (mask.sees(prefix, query, key)) {
        share[static_cast<std::size_t>(query / each * cells + key / each)] += 1 / static_cast<double>(each * each);
      }
    }
  }
  return {{"mask", describe(mask)},
          {"sublayers", boost::json::array()},
          {"positions", positions},
          {"prefix", prefix},
          {"matrix", matrix_to_json(share, cells)}};
}

}  // namespace

boost::json::array masks_to_json(ObservedModel const& observed) {
  boost::json::array masks;
  std::map<std::string, std::size_t> places;  // by the mask's description
  for (std::size_t index = 0; index < observed.calls.size(); ++index) {
    AttentionMask const& mask = observed.calls[index].mask;
    auto const [place, added] = places.try_emplace(describe(mask), masks.size());
    if (added) {
      masks.push_back(to_json(mask));
    }
    masks[place->second].at("sublayers").as_array().emplace_back(observed.sublayers[index].path);
  }
  return masks;
}

}  // namespace heddle
