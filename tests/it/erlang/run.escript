#!/usr/bin/env escript
%%! +S 1:1
%% Runs scenarios.txt on Erlang/OTP and prints the outcomes. The test tests/it/erlang.rs compares these outcomes with the
%% recorded outcomes. The compiled tree.erl must be on the code path.
-mode(compile).

main([File]) ->
    process_flag(trap_exit, true),
    logger:set_primary_config(level, none),
    ets:new(starts, [named_table, public]),
    {ok, Text} = file:read_file(File),
    Lines = [string:trim(L) || L <- string:split(binary_to_list(Text), "\n", all)],
    run([L || L <- Lines, L =/= "", hd(L) =/= $#], none).

%% ---- The acts, which run one after the other

run([], S) -> finish(S);
run(["scenario " ++ Name | Rest], S) ->
    finish(S),
    io:format("scenario ~s~n", [Name]),
    run(Rest, #{order => [], pids => #{}, known => #{}, refs => #{}, branches => #{}});
run(["differs " ++ _ | Rest], S) -> run(Rest, S);
run(["here " ++ _ | Rest], S) -> run(Rest, S);
run([Line | Rest], S) ->
    S2 = act(string:split(Line, " ", all), S),
    settle(S2, 3),
    run(Rest, names(S2)).

%% Signals are delivered asynchronously. An act is finished when two conditions hold: every process was found waiting
%% several times in a row, and the supervisors answer. There is one scheduler thread, so `yield` lets all runnable
%% processes run. Therefore the result does not depend on the speed of the machine.
settle(_, 0) -> ok;
settle(S, N) ->
    erlang:yield(),
    Roots = ["tree" | maps:keys(maps:get(branches, S))],
    [catch supervisor:count_children(maps:get(R, maps:get(pids, S))) || R <- Roots, is_map_key(R, maps:get(pids, S))],
    case lists:all(fun waits/1, processes()) of
        true -> settle(S, N - 1);
        false -> settle(S, 3)
    end.

waits(P) when P =:= self() -> true;
waits(P) -> lists:member(process_info(P, status), [{status, waiting}, {status, suspended}]).

finish(none) -> ok;
finish(S = #{order := Order, pids := Pids}) ->
    lists:foreach(fun(Name) -> io:format("~s ~s~n", [Name, ended(Name, S)]) end, lists:reverse(Order)),
    [exit(P, kill) || P <- maps:values(Pids), is_pid(P)],
    settle(S#{pids := #{}}, 3),
    ets:delete_all_objects(starts),
    flush().

flush() -> receive _ -> flush() after 0 -> ok end.

ended(Name, #{refs := Refs}) ->
    Ref = maps:get(Name, Refs),
    receive {'DOWN', Ref, process, _, Reason} -> "ended " ++ reason(Reason)
    after 0 -> "lives" end.

act(["spawn", P | Trap], S) ->
    Self = self(),
    track(P, spawn(fun() -> process_flag(trap_exit, Trap =:= ["trap"]), loop(Self, #{}) end), S);
act(["kill", P], S) -> exit(pid(P, S), kill), S;
act(["cancel", P], S) -> exit(pid(P, S), shutdown), S;
act(["whereis", N], S) ->
    io:format("whereis ~s: ~s~n", [N, case whereis(list_to_atom(N)) of undefined -> "nobody"; _ -> "somebody" end]),
    S;
act(["branch", B | Spec], S = #{branches := Branches}) -> S#{branches := maps:put(B, Spec, Branches)};
act(["tree" | Spec], S) -> begun(catch supervisor:start_link(tree, family(Spec, S)), S);
act(["add", Spec], S) -> answer(["add ", Spec], supervisor:start_child(pid("tree", S), child(Spec, S)), S);
act(["stop", P], S) -> answer(["stop ", P], supervisor:terminate_child(pid("tree", S), P), S);
act(["restart", P], S) -> answer(["restart ", P], supervisor:restart_child(pid("tree", S), P), S);
act(["remove", P], S) ->
    Stopped = supervisor:terminate_child(pid("tree", S), P),
    supervisor:delete_child(pid("tree", S), P),
    answer(["remove ", P], Stopped, S);
act(["children"], S) ->
    All = lists:reverse(supervisor:which_children(pid("tree", S))),
    io:format("children:~s~n", [[[" ", P, case is_pid(Pid) of true -> "-up"; _ -> "-down" end] || {P, Pid, _, _} <- All]]),
    S;
act(["log" | Sorted], S) ->
    Log = case Sorted of [] -> log(); ["sorted"] -> lists:sort(log()) end,
    io:format("log:~s~n", [[[" ", L] || L <- Log]]),
    S;
act([P, "tree" | Spec], S) -> begun(ask(P, {tree, family(Spec, S)}, S), S);
act([P, "end"], S) -> order(P, {stop, normal}, S), S;
act([P, "fail", X], S) -> order(P, {stop, list_to_atom(X)}, S), S;
act([P, How, Q | Rest], S) when How =:= "spawn_link"; How =:= "spawn_monitor"; How =:= "spawn_both" ->
    Child = ask(P, {spawn, How, Rest}, S),
    case Rest of
        [] -> track(Q, Child, S);
        _ -> know(Q, Child, S)
    end;
act([P, "mail", Q, X], S) -> ask(P, {mail, pid(Q, S), X}, S), S;
act([P, "takes_over", N, Q], S) -> ask(P, {take, N, pid(Q, S)}, S), S;
act([P, How, N], S) when How =:= "register"; How =:= "unregister" ->
    io:format("~s ~s ~s: ~s~n", [P, How, N, ask(P, {list_to_atom(How), list_to_atom(N)}, S)]),
    S;
act([P, "monitor_name", N], S) -> ask(P, {monitor_name, list_to_atom(N)}, S), S;
act([P, "mail_name", N, X], S) ->
    io:format("~s mail_name ~s: ~s~n", [P, N, ask(P, {mail_name, list_to_atom(N), X}, S)]),
    S;
act([P, "read" | Sorted], S) ->
    Heard = [heard(H, S) || H <- ask(P, read, S)],
    Told = case Sorted of [] -> Heard; ["sorted"] -> lists:sort(Heard) end,
    [io:format("~s: ~s~n", [P, T]) || T <- Told],
    S;
act([P, "trap"], S) -> ask(P, {trap, true}, S), S;
act([P, "untrap"], S) -> ask(P, {trap, false}, S), S;
act([P, How, Q], S) ->
    case ask(P, {list_to_atom(How), pid(Q, S)}, S) of
        ok -> ok;
        Told -> io:format("~s ~s ~s: ~s~n", [P, How, Q, Told])
    end,
    S.

track(P, Pid, S = #{order := Order, refs := Refs}) ->
    know(P, Pid, S#{order := [P | Order], refs := maps:put(P, monitor(process, Pid), Refs)}).

know(P, Pid, S = #{pids := Pids, known := Known}) ->
    S#{pids := maps:put(P, Pid, Pids), known := maps:put(Pid, P, Known)}.

%% Each child of a tree sends its name and its pid whenever it begins.
names(S) ->
    receive {is, P, Pid} -> names(know(P, Pid, S))
    after 0 -> S end.

log() -> receive {log, What} -> [What | log()] after 0 -> [] end.

pid(P, #{pids := Pids}) -> maps:get(P, Pids).

order(P, What, S) -> pid(P, S) ! {ctl, self(), What}.

ask(P, What, S) ->
    Pid = pid(P, S),
    Ref = monitor(process, Pid),
    Pid ! {ctl, self(), What},
    receive
        {done, Pid, Reply} -> demonitor(Ref, [flush]), Reply;
        {'DOWN', Ref, process, _, _} -> ok
    end.

answer(What, Reply, S) ->
    io:format("~s: ~s~n", [What, case Reply of ok -> "yes"; {ok, _} -> "yes"; {error, _} -> "no" end]),
    S.

heard({'EXIT', Pid, Reason}, S) -> lists:concat(["exit ", name(Pid, S), " ", reason(Reason)]);
heard({'DOWN', _, process, Whom, Reason}, S) -> lists:concat(["down ", name(Whom, S), " ", reason(Reason)]);
heard({mail, X}, _) -> "mail " ++ X.

name({Name, _Node}, _) -> atom_to_list(Name);
name(Pid, #{known := Known}) -> maps:get(Pid, Known).

reason({shutdown, _}) -> "shutdown";
reason(Reason) -> atom_to_list(Reason).

%% ---- A tree

begun({ok, Pid}, S) -> track("tree", Pid, S);
begun({error, _}, S) -> io:format("tree did not start~n"), S.

family([Strategy, Most | Children], S) ->
    Flags = #{strategy => list_to_atom(Strategy), intensity => list_to_integer(Most), period => 3600},
    {Flags, [child(C, S) || C <- Children]}.

%% NAME[:RESTART][!FAILS][/brutal|/stubborn]
child(Text, S = #{branches := Branches}) ->
    {Text2, End} = cut(Text, "/", ""),
    {Text3, Fails} = cut(Text2, "!", ""),
    {P, Restart} = cut(Text3, ":", "permanent"),
    Start = case Branches of
        #{P := Spec} -> {tree, begin_branch, [P, self(), family(Spec, S)]};
        _ -> {proc_lib, start_link, [tree, begin_child, [P, self(), Fails, End]]}
    end,
    Shutdown = case {End, is_map_key(P, Branches)} of
        {"brutal", _} -> brutal_kill;
        {"stubborn", _} -> 100;
        {_, true} -> infinity;
        _ -> 5000
    end,
    #{id => P, start => Start, restart => list_to_atom(Restart), shutdown => Shutdown}.

cut(Text, At, Default) ->
    case string:split(Text, At) of [Before, After] -> {Before, After}; [_] -> {Text, Default} end.

%% ---- A process

loop(Log, Watches) ->
    receive {ctl, From, What} -> did(From, What, Log, Watches) end.

did(_, {stop, Reason}, _, _) -> exit(Reason);
did(From, {take, N, Pid}, Log, Watches) ->
    Ref = monitor(process, Pid),
    From ! {done, self(), ok},
    receive {'DOWN', Ref, process, _, _} -> ok end,
    Took = try register(list_to_atom(N), self()), "took" catch error:badarg -> "missed" end,
    self() ! {mail, Took},
    loop(Log, Watches);
did(From, What, Log, Watches) ->
    {Reply, Watches2} = do(What, Watches),
    From ! {done, self(), Reply},
    loop(Log, Watches2).

do({link, Pid}, W) -> {try link(Pid), ok catch error:noproc -> "noproc" end, W};
do({unlink, Pid}, W) -> unlink(Pid), {ok, W};
do({monitor, Pid}, W) -> {ok, maps:put(Pid, monitor(process, Pid), W)};
do({monitor_name, N}, W) -> monitor(process, N), {ok, W};
do({demonitor, Pid}, W) -> {atom_to_list(demonitor(maps:get(Pid, W), [info])), W};
do({demonitor_flush, Pid}, W) -> {atom_to_list(demonitor(maps:get(Pid, W), [info, flush])), W};
do({trap, On}, W) -> process_flag(trap_exit, On), {ok, W};
do({mail, Pid, X}, W) -> Pid ! {mail, X}, {ok, W};
do({mail_name, N, X}, W) -> {try N ! {mail, X}, "yes" catch error:badarg -> "no" end, W};
do({register, N}, W) -> {try register(N, self()), "yes" catch error:badarg -> "no" end, W};
do({unregister, N}, W) -> {try unregister(N), "yes" catch error:badarg -> "no" end, W};
do({tree, Family}, W) -> {supervisor:start_link(tree, Family), W};
do({spawn, How, Rest}, W) ->
    Body = case Rest of
        [] -> fun() -> loop(none, #{}) end;
        ["end"] -> fun() -> ok end;
        ["fail", X] -> fun() -> exit(list_to_atom(X)) end
    end,
    case How of
        "spawn_link" -> {spawn_link(Body), W};
        "spawn_monitor" -> {Pid, Ref} = spawn_monitor(Body), {Pid, maps:put(Pid, Ref, W)};
        "spawn_both" -> {Pid, Ref} = spawn_opt(Body, [link, monitor]), {Pid, maps:put(Pid, Ref, W)}
    end;
do(read, W) -> {read(), W}.

read() ->
    receive
        M = {'EXIT', _, _} -> [M | read()];
        M = {'DOWN', _, _, _, _} -> [M | read()];
        M = {mail, _} -> [M | read()]
    after 0 -> [] end.
