#include "support/tile_configuration.hpp"
#include "tiles_body.hpp"

namespace heddle::amx {

namespace {

/// The cache lines of a step of a panel.
constexpr std::int64_t step_lines = step_elements * 2 / 64;

/// Reads a panel ahead, which is one piece of memory.
class PanelAhead {
 public:
  PanelAhead(void const* panel, std::int64_t steps, std::int64_t uses)
      : next_(static_cast<char const*>(panel)), at_once_(ceil_div(steps * step_lines, uses)) {}

  void read() {
    for (std::int64_t i = 0; i < at_once_; ++i, next_ += 64) {
      _mm_prefetch(next_, _MM_HINT_T1);
    }
  }

 private:
  char const* next_;
  std::int64_t at_once_;
};

/// All products of one block.
template <bool float32, bool accumulate, bool split>
class Panels {
 public:
  explicit Panels(Block const& block) : block_(block), writer_(block.output) {}

  void multiply() {
    for (std::int64_t column = 0; column < panels_; ++column) {
      PanelAhead ahead(block_.right + (column + 1) * block_.right_panel, block_.steps * parts(split),
                       strips_ * block_.steps);
      for (std::int64_t strip = 0; strip < strips_; ++strip) {
        multiply(strip, column, ahead);
      }
    }
    writer_.write(panel);
  }

 private:
  void multiply(std::int64_t strip, std::int64_t column, PanelAhead& ahead) {
    float* const partial =
        block_.partial != nullptr ? block_.partial + (strip * panels_ + column) * sums_elements : nullptr;
    float* const sums = block_.last ? rooms_[room_] : partial;
    float const* const before = block_.first ? nullptr : partial;
    Left left = block_.left;
    left.data += strip * block_.strip;
    std::uint16_t const* const right = block_.right + column * block_.right_panel;
    if (block_.last) {
      writer_.expect(strip * panel, column * panel);
    }
    if (block_.output.rows - strip * panel > tile_rows) {
      multiply_tiles<true, split>(left, block_.steps, right, {before, sums}, writer_, ahead);
    } else {
      multiply_tiles<false, split>(left, block_.steps, right, {before, sums}, writer_, ahead);
    }
    if (block_.last) {
      writer_.start(sums, strip * panel, column * panel);
      room_ ^= 1;
    }
  }

  Block const& block_;
  std::int64_t strips_ = ceil_div(block_.output.rows, panel);
  std::int64_t panels_ = ceil_div(block_.output.columns, panel);
  Writer<float32, accumulate> writer_;
  alignas(64) float rooms_[2][sums_elements];
  int room_ = 0;
};

}  // namespace

void configure() {
  static constexpr TileConfiguration configuration;
  _tile_loadconfig(&configuration);
}

void release() {
  _tile_release();
}

void multiply_panels(Block const& block) {
  multiply_with<Panels>(block, block.output, block.split);
}

}  // namespace heddle::amx
