-- The program src/load/http.rs reads this line.
function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("result %d %d %d", summary.requests, summary.duration, failed))
end
