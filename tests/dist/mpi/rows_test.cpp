#include "dist_fixture.hpp"

namespace heddle {
namespace {

using Rows = std::vector<std::int64_t>;
constexpr std::int64_t width = 3;

/// Small integers: exact in every dtype, and so are their sums over 8 ranks.
float value(int rank, std::int64_t row, std::int64_t column) {
  return static_cast<float>((rank * 7 + row * 5 + column * 3) % 13) - 4;
}

std::int64_t total(Rows const& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// `value(rank, row)` for the rows [begin, end), appended.
template <class Element>
void append(std::vector<Element>& elements, int rank, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      elements.push_back(static_cast<Element>(value(rank, row, column)));
    }
  }
}

template <class Element>
Tensor matrix(int rank, std::int64_t rows) {
  std::vector<Element> elements;
  append(elements, rank, 0, rows);
  return from_host(std::span<Element const>(elements), {rows, width});
}

template <class Element>
Tensor filled_with_wrong(std::int64_t rows) {
  std::vector<Element> const elements(static_cast<std::size_t>(rows * width), static_cast<Element>(99.0F));
  return from_host(std::span<Element const>(elements), {rows, width});
}

template <class Element>
std::vector<float> floats(std::vector<Element> const& elements) {
  std::vector<float> result;
  std::ranges::transform(elements, std::back_inserter(result),
                         [](Element element) { return static_cast<float>(element); });
  return result;
}

template <class Element>
std::vector<float> read(Tensor const& tensor) {
  return floats(to_host<Element>(tensor));
}

template <class Element>
void check_all_gather(Communicator const& group, Rows const& rows) {
  std::vector<Element> expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    append(expected, rank, 0, rows[static_cast<std::size_t>(rank)]);
  }
  auto const here = static_cast<std::size_t>(group.rank());
  Tensor const input = matrix<Element>(group.rank(), rows[here]);
  Tensor const output = filled_with_wrong<Element>(total(rows));
  group.all_gather_rows(input, output, rows);
  EXPECT_EQ(read<Element>(output), floats(expected));

  Tensor const in_place = filled_with_wrong<Element>(total(rows));
  std::int64_t const begin = std::accumulate(rows.begin(), rows.begin() + group.rank(), std::int64_t{0});
  Tensor const own = in_place.rows(begin, rows[here]);
  copy_from_host(own, to_host<Element>(input).data());
  group.all_gather_rows(own, in_place, rows);
  EXPECT_EQ(read<Element>(in_place), floats(expected));
}

template <class Element>
void check_reduce_scatter(Communicator const& group, Rows const& rows) {
  auto const here = static_cast<std::size_t>(group.rank());
  std::int64_t const begin = std::accumulate(rows.begin(), rows.begin() + group.rank(), std::int64_t{0});
  std::vector<float> expected(static_cast<std::size_t>(rows[here] * width));
  for (int rank = 0; rank < group.size(); ++rank) {
    std::vector<float> part;
    append(part, rank, begin, begin + rows[here]);
    std::ranges::transform(expected, part, expected.begin(), std::plus());
  }
  Tensor const output = filled_with_wrong<Element>(rows[here]);
  group.reduce_scatter_rows(matrix<Element>(group.rank(), total(rows)), output, rows);
  EXPECT_EQ(read<Element>(output), expected);
}

/// Rank r sends count(r, d) rows to rank d.
template <class Element>
void check_all_to_all(Communicator const& group, auto const& count) {
  Rows send_rows;
  Rows receive_rows;
  std::vector<Element> expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    send_rows.push_back(count(group.rank(), rank));
    receive_rows.push_back(count(rank, group.rank()));
    std::int64_t begin = 0;
    for (int before = 0; before < group.rank(); ++before) {
      begin += count(rank, before);
    }
    append(expected, rank, begin, begin + receive_rows.back());
  }
  Tensor const output = filled_with_wrong<Element>(total(receive_rows));
  group.all_to_all_rows(matrix<Element>(group.rank(), total(send_rows)), send_rows, output, receive_rows);
  EXPECT_EQ(read<Element>(output), floats(expected));
}

template <class Element>
void check_rows_of(Communicator const& group) {
  SCOPED_TRACE(name_of(DTypeOf<Element>::value));
  int const ranks = group.size();
  for (int kind = 0; kind < 4; ++kind) {
    Rows rows;
    for (int rank = 0; rank < ranks; ++rank) {
      // uneven · some empty · all on the last · none anywhere
      std::int64_t const of_kind[]{rank % 3 + 4, (rank % 2) * 5, rank == ranks - 1 ? 9 : 0, 0};
      rows.push_back(of_kind[kind]);
    }
    SCOPED_TRACE(kind);
    check_all_gather<Element>(group, rows);
    check_reduce_scatter<Element>(group, rows);
  }
  check_all_to_all<Element>(group, [](int from, int to) { return std::int64_t{from * 2 + to + 1}; });
  check_all_to_all<Element>(group, [](int from, int to) { return std::int64_t{(from + to) % 3}; });
  check_all_to_all<Element>(group, [](int from, int /*to*/) { return std::int64_t{from == 0 ? 6 : 0}; });
  check_all_to_all<Element>(group, [](int, int) { return std::int64_t{0}; });
}

void check_rows(Communicator const& group) {
  check_rows_of<float>(group);
  check_rows_of<double>(group);
  check_rows_of<std::int32_t>(group);
  check_rows_of<BFloat16>(group);
}

using RowsTest = DistTest;

TEST_F(RowsTest, UnevenAndEmptyPartsArriveInOrder) {
  check_rows(world_);
}

TEST_F(RowsTest, InPiecesOfAFewElementsToo) {
  MpiSession const session(5);
  check_rows(session.world());
  check_rows(session.world().split(world_.rank() % 2, world_.rank()));
}

TEST_F(RowsTest, PiecesOnSomeRanksOnlyMeet) {
  // One rank sends more than a call moves, the others less: no rank's method may depend only on its own counts.
  MpiSession const session(40);
  check_all_to_all<float>(session.world(),
                          [](int from, int to) { return std::int64_t{from == 0 && to != 0 ? 30 : 1}; });
}

TEST_F(RowsTest, RowsMayHaveSeveralAxes) {
  Rows const rows(static_cast<std::size_t>(world_.size()), 2);
  Tensor const output = filled_with_wrong<float>(2 * world_.size() * 4).reshaped({2 * world_.size(), 4, width});
  Tensor const input = matrix<float>(0, 8).reshaped({2, 4, width});
  world_.all_gather_rows(input, output, rows);
  EXPECT_EQ(to_host<float>(output.rows(2 * world_.size() - 2, 2)), to_host<float>(input));
}

TEST_F(RowsTest, RanksThatDisagreeOnTheirRowsThrow) {
  if (world_.size() == 1) {
    return;  // nobody to disagree with
  }
  // Each rank sends one row to each other, but rank 0 waits for two rows of rank 1.
  Rows const send_rows(static_cast<std::size_t>(world_.size()), 1);
  Rows receive_rows = send_rows;
  receive_rows[1] += world_.rank() == 0 ? 1 : 0;
  auto const exchange = [&] {
    world_.all_to_all_rows(matrix<float>(0, total(send_rows)), send_rows, filled_with_wrong<float>(total(receive_rows)),
                           receive_rows);
  };
  if (world_.rank() == 0) {
    expect_contains(error_of(exchange), "all_to_all_rows: rank 1 sent 3 elements where 6 were expected");
  } else {
    exchange();
  }
}

}  // namespace
}  // namespace heddle
