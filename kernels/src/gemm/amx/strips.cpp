#include "tiles_body.hpp"

namespace heddle::amx {

namespace {

/// Reads into the caches what the products after the present ones need, between their operations.
struct Ahead {
  RowsAhead left, right;       ///< rows of the factors
  char const* sums = nullptr;  ///< the partial sums of the next strip and panel
  std::int64_t sums_at_once = 0;

  void read() {
    left.read();
    right.read();
    for (std::int64_t i = 0; i < sums_at_once; ++i, sums += 64) {
      _mm_prefetch(sums, _MM_HINT_T0);
    }
  }
};

/// A block of columns, rows and k begins here.
struct Place {
  std::int64_t column = 0, row = 0, k = 0;

  bool same_right(Place const& other) const { return column == other.column && k == other.k; }
};

/// Blocks of columns, in each the blocks of rows, and in each of those the blocks of k.
template <bool float32, bool accumulate, bool split>
class Strips {
 public:
  explicit Strips(Product const& product)
      : product_(product), by_(product.blocking), c_(product.c), writer_(product.c) {}

  void multiply() {
    Place place;
    Place before{.column = -1};
    while (place.column < c_.columns) {
      if (product_.packed == nullptr && !place.same_right(before)) {
        pack_columns(right_of(place), product_.right);
      }
      Place const next = after(place);
      multiply_block(place, next);
      before = place;
      place = next;
    }
    writer_.write(panel);
  }

 private:
  Place after(Place place) const {
    std::int64_t const rows = rows_of(place);
    place.k += by_.k;
    if (place.k >= product_.a.k) {
      place.k = 0;
      place.row += rows;
    }
    if (place.row >= c_.rows) {
      place.row = 0;
      place.column += by_.columns;
    }
    return place;
  }

  std::int64_t k_of(Place const& place) const { return smaller(by_.k, product_.a.k - place.k); }
  std::int64_t columns_of(Place const& place) const { return smaller(by_.columns, c_.columns - place.column); }
  /// Rows are read in place where steps are whole, strip by strip; the rest, less than a strip, is packed.
  std::int64_t rows_of(Place const& place) const {
    std::int64_t const rows = smaller(by_.rows, c_.rows - place.row);
    return in_place() && rows > panel ? rows / panel * panel : rows;
  }
  Factor left_of(Place const& place) const {
    return part_of(product_.a, place.row, rows_of(place), place.k, k_of(place));
  }
  Factor right_of(Place const& place) const {
    return part_of(product_.b, place.column, columns_of(place), place.k, k_of(place));
  }

  bool in_place() const {
    Factor const& a = product_.a;
    return !split && a.k_contiguous && a.k % step == 0;
  }

  /// The first strip of a block, and the elements to the next one.
  struct Rows {
    Left left;
    std::int64_t strip;
  };
  Rows rows_at(Place const& place) const {
    Factor const a = left_of(place);
    if (in_place() && a.extent % panel == 0) {
      return {{static_cast<std::uint16_t const*>(a.data), a.stride, tile_rows * a.stride, step}, panel * a.stride};
    }
    pack_rows(a, product_.left);
    return {{product_.left, step, step_elements / 2, packed_step(a)}, packed_elements(panel, a.k) * parts(split)};
  }

  void multiply_block(Place const& place, Place const& next) {
    Rows rows = rows_at(place);
    std::int64_t const strips = ceil_div(rows_of(place), panel);
    panels_ = ceil_div(columns_of(place), panel);
    steps_ = ceil_div(k_of(place), step);
    start_reading(place, next, strips * panels_ * steps_);
    for (std::int64_t strip = 0; strip < strips; ++strip, rows.left.data += rows.strip) {
      multiply_strip(place, strip, rows.left);
    }
  }

  /// Reads the factors of the next block ahead, or rows in place from the next strip on: into the first-level cache
  /// where a strip leaves much of it free.
  void start_reading(Place const& place, Place const& next, std::int64_t uses) {
    constexpr std::int64_t short_k = 256;
    Place rows = next;
    if (in_place() && next.k == 0) {
      rows = {place.column, place.row + panel, place.k};
    }
    bool const more = rows.column < c_.columns && rows.row < c_.rows;
    ahead_.left = more ? RowsAhead(lines_of(left_of(rows)), uses, in_place() && by_.k <= short_k) : RowsAhead();
    bool const packs = product_.packed == nullptr && next.column < c_.columns && !next.same_right(place);
    ahead_.right = packs ? RowsAhead(lines_of(right_of(next)), uses) : RowsAhead();
  }

  void multiply_strip(Place const& place, std::int64_t strip, Left const& rows) {
    bool const last = place.k + by_.k >= product_.a.k;
    std::int64_t const row = place.row + strip * panel;
    bool const two_tiles = c_.rows - row > tile_rows;
    bool const packed = product_.packed != nullptr;
    std::uint16_t const* right = product_.right;
    if (packed) {
      right = product_.packed + (packed_elements(place.column, product_.a.k) + place.k * panel) * parts(split);
    }
    std::int64_t const to_next = packed_elements(panel, packed ? product_.a.k : k_of(place)) * parts(split);
    for (std::int64_t i = 0; i < panels_; ++i, right += to_next) {
      float* const partial =
          product_.partial != nullptr ? product_.partial + (strip * panels_ + i) * sums_elements : nullptr;
      float* const after = last ? rooms_[room_] : partial;
      Sums const sums{place.k == 0 ? nullptr : partial, after};
      if (partial != nullptr) {
        ahead_.sums = reinterpret_cast<char const*>(partial + sums_elements);
        ahead_.sums_at_once = ceil_div(sums_elements * 4 / 64, steps_);
      }
      if (last) {
        writer_.expect(row, place.column + i * panel);
      }
      two_tiles ? multiply_tiles<true, split>(rows, steps_, right, sums, writer_, ahead_)
                : multiply_tiles<false, split>(rows, steps_, right, sums, writer_, ahead_);
      if (last) {
        writer_.start(after, row, place.column + i * panel);
        room_ ^= 1;
      }
    }
  }

  Product const& product_;
  Blocking const& by_;
  Output const& c_;
  Writer<float32, accumulate> writer_;
  Ahead ahead_;
  std::int64_t panels_ = 0, steps_ = 0;
  alignas(64) float rooms_[2][sums_elements];
  int room_ = 0;
};

}  // namespace

void multiply_strips(Product const& product) {
  multiply_with<Strips>(product, product.c, product.blocking.split);
}

}  // namespace heddle::amx
